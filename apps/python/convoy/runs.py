"""Runs of convoy-train: starts them, and reads their directories."""

import json
import os
import pathlib
import tempfile

from convoy import predictions
from convoy.programs import run_program
from convoy.weights import load_weights


def train(out, *, echo=True, **flags):
    """Trains with convoy-train into the directory `out`, and returns its Run.

    flags: those of convoy-train, such as model="lenet", batch_size=64 or sync_bn=True. echo: prints the progress. Raises
    ProgramError if the training fails. After an interrupt (Ctrl-C) it has saved a checkpoint, and resume="auto"
    continues it.
    """
    run_program("convoy-train", out=out, echo=echo, **flags)
    return Run(out)


def to_table(records):
    """Returns records as a pandas.DataFrame, or as they are, a list of dicts, where pandas is not installed."""
    try:
        import pandas
    except ImportError:
        return records
    return pandas.DataFrame.from_records(records)


class Run:
    """The directory of a training, which is also a path. Raises FileNotFoundError if it has no log."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        if not (self.directory / "log.jsonl").is_file():
            raise FileNotFoundError(f"{self.directory}: found no log.jsonl, expected the directory of a training (--out)")

    def __fspath__(self):
        return str(self.directory)

    def __repr__(self):
        return f"Run({str(self.directory)!r})"

    def events(self, event=None):
        """Returns the events of the log, or those of one kind ("start", "step", "epoch", "eval", "save", "warning",
        "error", "result"), as dicts. A line that is still being written is left out. Raises ValueError for a line that
        is no JSON object."""
        found = []
        for number, line in enumerate((self.directory / "log.jsonl").read_bytes().split(b"\n")[:-1], 1):
            try:
                record = json.loads(line)
                kind = record["event"]
            except (ValueError, TypeError, KeyError) as error:
                raise ValueError(f"{self.directory}/log.jsonl:{number}: expected an event: {error!r}") from error
            if event in (None, kind):
                found.append(record)
        return found

    def table(self, event="step"):
        """Returns the events of one kind as a pandas.DataFrame, or as a list of dicts where pandas is not installed."""
        return to_table(self.events(event))

    @property
    def config(self):
        """The value of each flag, a dict."""
        return self.events("start")[-1]["config"]

    @property
    def result(self):
        """The last line of a complete training: test_accuracy, train_seconds and others. Raises RuntimeError if it is
        not complete."""
        last = self.events()[-1:]
        if not last or last[0]["event"] != "result":
            found = last[0]["event"] if last else "nothing"
            raise RuntimeError(f"{self.directory}: the training is not complete; its log ends with {found}")
        return last[0]

    @property
    def evaluation(self):
        """The predictions of the best evaluation, evaluation.json: confusion matrix, classes, mistakes."""
        return json.loads((self.directory / "evaluation.json").read_text(encoding="utf-8"))

    def checkpoint(self, which="best"):
        """Returns the directory of the best checkpoint, or of the newest one (which="latest"). If no evaluation was the
        best, the newest is the best."""
        if which not in ("best", "latest"):
            raise ValueError(f"which: found {which!r}, expected 'best' or 'latest'")
        checkpoints = self.directory / "checkpoints"
        name = next((file for file in [checkpoints / which.upper(), checkpoints / "LATEST"] if file.is_file()), None)
        if name is None:
            raise FileNotFoundError(f"{checkpoints}: found no checkpoint")
        return checkpoints / name.read_text(encoding="utf-8").strip()

    def weights(self, which="best"):
        """Returns the parameters and statistics of a checkpoint as NumPy arrays: load_weights()."""
        return load_weights(self.checkpoint(which) / "model.safetensors")

    def predict(self, images, *, top=5, **flags):
        """Returns the most probable classes of images by the best checkpoint: predict()."""
        return predictions.predict(self.directory, images, top=top, **flags)

    def logits(self, images, **flags):
        """Returns the logits of images by the best checkpoint: logits()."""
        return predictions.logits(self.directory, images, **flags)

    def evaluate(self, **flags):
        """Evaluates the best checkpoint with convoy-evaluate and returns its JSON: accuracy, loss, precision, recall, …

        flags: those of the program, such as data="photos/test" or split="train"."""
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "evaluation.json")
            run_program("convoy-evaluate", checkpoint=self.directory, json=file, **flags)
            return json.loads(pathlib.Path(file).read_text(encoding="utf-8"))

    def report(self, **flags):
        """Writes the page of convoy-report, and returns its path: report.html in the run's directory, or out=FILE."""
        page = pathlib.Path(flags.pop("out", self.directory / "report.html"))
        run_program("convoy-report", self.directory, out=page, **flags)
        return page

    def export_onnx(self, file, **flags):
        """Writes the network of the best checkpoint for ONNX Runtime and others: convoy-export."""
        run_program("convoy-export", checkpoint=self.directory, onnx=file, **flags)
