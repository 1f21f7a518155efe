"""Runs short trainings in every precision, and one under compute-sanitizer: the first look at a GPU."""

import functools
import tempfile

from gpu_validation.environment import need_device, sanitizer_problem
from gpu_validation.training import Trainer
from gpu_validation.work import Failed, NotHere

# Name: flags, and steps. The batches repeat, so that a network that learns remembers them.
TRAININGS = {
    "resnet18 bf16, as a CUDA graph": (("--precision", "bf16"), 200),
    "resnet18 bf16, op by op": (("--precision", "bf16", "--no-cuda-graph"), 50),
    "resnet18 fp32": (("--precision", "fp32"), 50),
    "resnet18 tf32": (("--precision", "tf32"), 50),
    "resnet18 fp16": (("--precision", "fp16"), 50),
}
MODEL, QUICK_MODEL = "resnet18", "lenet"  # the latter with --quick
QUICK_STEPS = 12
FLAGS = ("--batch-size", 32, "--lr", 0.02, "--schedule", "constant")


def learns(losses):
    """Returns whether the losses are numbers, and the last quarter is on average below the first."""
    quarter = len(losses) // 4
    first, last = sum(losses[:quarter]), sum(losses[-quarter:])
    return quarter > 0 and last < first  # false for NaN


def train(work, trainer, name):
    flags, steps = TRAININGS[name]
    model, steps = (QUICK_MODEL, QUICK_STEPS) if work.quick else (MODEL, steps)
    run = trainer("cuda", "--model", model, *flags, *FLAGS, "--max-steps", steps)
    work.found[name] = {"steps": len(run.losses), "first_loss": run.losses[0], "last_loss": run.losses[-1],
                        "images_per_second": run.images_per_second, "warnings": run.warnings}
    if not learns(run.losses):
        raise Failed(f"the loss does not fall: {run.losses[0]:.4g} at first, {run.losses[-1]:.4g} after {steps} steps")
    if any("graph" in warning for warning in run.warnings):
        raise Failed("; ".join(run.warnings))


def sanitize(work, trainer):
    problem = sanitizer_problem(work)
    if problem:
        raise NotHere(f"compute-sanitizer: {problem}")
    sanitizer = ("compute-sanitizer", "--tool", "memcheck", "--error-exitcode", "9")
    trainer("cuda", "--model", "lenet", "--max-steps", 6, "--batch-size", 8, launcher=sanitizer)


def run(work):
    need_device(work)
    with tempfile.TemporaryDirectory() as directory:
        trainer = Trainer(work, directory)
        for name in TRAININGS:
            work.trial(name, functools.partial(train, work, trainer, name))
        work.trial("lenet under compute-sanitizer", functools.partial(sanitize, work, trainer))
