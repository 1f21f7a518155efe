"""Convoy from Python: runs its programs, reads what they write, and predicts.

    run = convoy.train("runs/digits", model="lenet", dataset="mnist", epochs=2)
    run.result["test_accuracy"]             # the last line of the log, a dict
    run.table("eval")                       # evaluations: a pandas.DataFrame, or a list of dicts without pandas
    run.weights()["conv1.weight"]           # the best checkpoint as NumPy arrays
    run.predict(["a.png", "b.png"], top=1)  # [[{"class": …, "label": …, "probability": …}], …]

Training and prediction are those of the programs convoy-train and convoy-predict: this package starts them and has no
engine of its own. A program that fails raises ProgramError with its message and exit code. Loading weights, logits and
arrays of pixels need NumPy.
"""

from convoy.predictions import logits, predict
from convoy.programs import ProgramError, find_program, run_program
from convoy.runs import Run, train
from convoy.weights import load_weights

__all__ = ["ProgramError", "Run", "find_program", "load_weights", "logits", "predict", "run_program", "train"]
