"""Compares twenty training steps with PyTorch's (bench/python/pytorch_losses.py), in every precision."""

import functools
import json
import pathlib
import tempfile

from gpu_validation.environment import need_device
from gpu_validation.work import Failed, NotHere, last_line

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "bench" / "python" / "pytorch_losses.py"
CASES = (("lenet", "fp32"), ("resnet20", "fp64"), ("resnet20", "fp32"), ("resnet18", "fp32"), ("resnet18", "tf32"),
         ("resnet18", "bf16"), ("resnet18", "fp16"))
QUICK = (("lenet", "fp32"), ("lenet", "fp64"), ("lenet", "bf16"), ("lenet", "fp16"))
KEPT = ("steps", "loss_error", "loss_error_pytorch", "state_error", "state_error_pytorch", "floor", "slack", "agree")


def need_pytorch(work):
    """Returns PyTorch's version; raises NotHere without PyTorch."""
    done = work.run([work.python, "-c", "import importlib.util as u\nif u.find_spec('torch') is None: raise SystemExit(77)\n"
                     "import torch; print(torch.__version__)"], 60)
    if done.returncode == 77:
        raise NotHere(f"{work.python} has no torch")
    if done.returncode != 0:  # it is installed and does not work
        raise Failed(f"{work.python}: {last_line(done.stderr)}")
    return done.stdout.strip()


def compare(work, model, precision):
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "figures.json"
        command = [
            work.python, PROGRAM, "--convoy", work.programs / "convoy-train", "--model", model, "--precision",
            precision, "--device", "cuda", "--json", report
        ]
        if work.quick:  # PyTorch cannot use emulated GPUs
            command += ["--pytorch-device", "cpu", "--steps", 4, "--batch-size", 10]
        done = work.run(command)
        if not report.exists():
            raise Failed(last_line(done.stderr))
        figures = json.loads(report.read_text())
    work.found[f"{model} {precision}"] = {key: figures[key] for key in KEPT}
    if done.returncode != 0:
        raise Failed(last_line(done.stderr))


def run(work):
    need_device(work)
    need_pytorch(work)
    work.trials({f"{model} {precision}": functools.partial(compare, work, model, precision)
                 for model, precision in (QUICK if work.quick else CASES)}, work.max_concurrent(3))
