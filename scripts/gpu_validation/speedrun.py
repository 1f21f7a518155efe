"""Trains speedrun by the speed recipe with many seeds, alternating with PyTorch (bench/python/compare.py speedrun)."""

import os
import pathlib
import tempfile

from gpu_validation.environment import need_device
from gpu_validation.losses import need_pytorch
from gpu_validation.work import NotHere
import generated_images  # of bench/python, which work.py has put on the path

SEEDS = 50
BLOCK = 25  # trainings of a side in one process, as the record's script makes them
COMPILED = "reduce-overhead"  # max-autotune compiles for minutes
# Of the training and the evaluation by six views: seconds, and the ratio to PyTorch's. Of a whole process: seconds.
GOALS = {"seconds": 0.75, "ratio": 0.70, "process_seconds": 3.0}


def timed(side):
    """Returns the seconds that the record's rule counts: the whitening, the training, and the evaluation by six views."""
    return side["record_seconds"]["mean"]


def goal_rows(sides):
    """Returns [name, measured or None, goal, reached or None] for each goal."""
    seconds = timed(sides["convoy"])
    # The shortest time to a result: the first process also makes the plans that the others read.
    process = min(sides["convoy"]["process_seconds"]["each"])
    peers = [timed(sides[side]) for side in ("pytorch", "compiled") if side in sides]
    ratio = seconds / min(peers) if peers else None
    return [[what, measured, goal, None if measured is None else measured <= goal]
            for what, measured, goal in (("seconds of training and six views", seconds, GOALS["seconds"]),
                                         ("of PyTorch's seconds, the faster of eager and compiled", ratio, GOALS["ratio"]),
                                         ("seconds of a process", process, GOALS["process_seconds"]))]


def flags_for(work, directory, stored):
    """Returns the flags of compare.py speedrun. The rehearsal has few generated images and no PyTorch."""
    if work.quick:
        data = pathlib.Path(directory) / "data"
        generated_images.write_dataset(data, 32, 64)
        return ["--data", data, "--model", "speedrun-small", "--seeds", 2,
                "--flags", "--dataset", "folder", "--max-steps", 2, "--batch-size", 8]
    data = os.environ.get("CONVOY_DATA", "")
    if not (pathlib.Path(data) / "cifar10").is_dir():
        raise NotHere(f"CONVOY_DATA='{data}' has no cifar10/ with class directories")
    # The cache of images makes the trainings of a process follow each other sooner; no time that is reported has it.
    own = ["--data", data, "--model", "speedrun", "--precision", "bf16",
           "--seeds", BLOCK if stored else SEEDS, "--block", BLOCK]
    flags = ["--flags", "--image-cache", pathlib.Path(directory) / "images"]
    if stored:
        return own + flags
    need_pytorch(work)
    return own + ["--python", work.python, "--python-precision", "fp16", "--python-compile", COMPILED] + flags


def run(work):
    need_device(work)
    stored = None if "speedrun" in work.options.get("questioned", ()) else work.options.get("pytorch", {}).get("speedrun")
    with tempfile.TemporaryDirectory() as directory:
        figures = work.compare("speedrun", ["--time-limit", int(work.left() - 3), *flags_for(work, directory, stored)])
    if stored and not work.quick:
        figures["stored"] = {key: stored[key] for key in ("date", "torch")}
        figures["sides"].update(stored["sides"])
    work.found = {**figures, "goals": goal_rows(figures["sides"])}
