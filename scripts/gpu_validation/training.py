"""Compares whole trainings: GPU and CPU, each precision and fp32, a CUDA graph and op by op, a run and its repeat."""

import dataclasses
import json
import pathlib
import tempfile

from gpu_validation.environment import need_device
from gpu_validation.work import Failed, last_line

import generated_images  # of bench/python, which work.py has put on the path

# Unit roundoff of the factors. There are a few roundings between image and loss, which five steps amplify.
ROUNDOFF = {"tf32": 2.0**-11, "fp16": 2.0**-11, "bf16": 2.0**-8}
ROUNDINGS = 8


@dataclasses.dataclass
class Run:
    losses: list
    images_per_second: float
    parameters_hash: str
    tensors: bytes  # the checkpoint's file
    warnings: list


class Trainer:
    """Runs convoy-train on 64 generated images of 32x32 pixels, few enough to reach the end of an epoch."""

    def __init__(self, work, directory):
        self.work = work
        self.directory = pathlib.Path(directory)
        generated_images.write_dataset(self.directory / "data", 32, 64)
        self.count = 0

    def __call__(self, device, *flags, launcher=()):
        self.count += 1
        out = self.directory / f"run{self.count}"
        command = [
            *launcher, self.work.programs / "convoy-train", "--dataset", "folder", "--data", self.directory / "data",
            "--device", device, "--log-every", 1, "--eval-every", 0, "--save-every", 1000000, "--plan-cache", "none", "--out", out,
            *flags
        ]
        done = self.work.run(command)
        if done.returncode != 0:
            raise Failed(f"convoy-train --device {device}: code {done.returncode}, {last_line(done.stderr)}")
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
        checkpoints = out / "checkpoints"
        return Run([line["loss"] for line in log if line["event"] == "step"], log[-1]["images_per_second"],
                   log[-1]["parameters_hash"],
                   (checkpoints / (checkpoints / "LATEST").read_text().strip() / "model.safetensors").read_bytes(),
                   [line["message"] for line in log if line["event"] == "warning"])


def worst_difference(found, expected):
    """Returns the largest relative difference of two lists of losses; infinite if lengths differ or a loss is NaN."""
    if len(found) != len(expected) or not found:
        return float("inf")
    worst = max(abs(a - b) / abs(b) for a, b in zip(found, expected))
    return worst if worst == worst else float("inf")


def compare(work, name, found, expected, tolerance):
    worst = worst_difference(found.losses, expected.losses)
    work.found[name] = {"steps": len(found.losses), "worst_relative_difference": worst, "tolerance": tolerance}
    if not worst <= tolerance:
        raise Failed(f"losses differ by {worst:.1e}, expected at most {tolerance:.0e}")


def compare_with_cpu(work, train):
    # Without batch norm the losses agree in fp32; with batch norm only in fp64.
    for name, tolerance, flags in (("lenet fp32", 1e-5, ("--model", "lenet", "--max-steps", 20, "--batch-size", 24)),
                                   ("resnet20 fp64", 1e-9, ("--model", "resnet20", "--max-steps", 3, "--batch-size", 8,
                                                            "--precision", "fp64"))):
        name = f"{name}, CPU compared with GPU"
        work.trial(name, lambda name=name, tolerance=tolerance, flags=flags:
                   compare(work, name, train("cuda", *flags), train("cpu", *flags), tolerance))


def each_precision(work, train):
    # A small constant rate: with a recipe's, each step amplifies the differences of the one before several times.
    model, batch = ("lenet", 24) if work.quick else ("resnet20", 64)
    flags = ("--model", model, "--max-steps", 5, "--batch-size", batch, "--lr", 0.01, "--schedule", "constant")
    exact = []

    def part(name, precision):
        if not exact:
            exact.append(train("cuda", *flags))
        run = train("cuda", *flags, "--precision", precision)
        compare(work, name, run, exact[0], ROUNDINGS * ROUNDOFF[precision])
        if precision != "tf32" and run.losses == exact[0].losses:  # tf32 may use exact algorithms
            raise Failed("the losses equal those of fp32, bit for bit: the precision was not used")

    for precision in ROUNDOFF:
        name = f"{flags[1]} {precision} compared with fp32"
        work.trial(name, lambda name=name, precision=precision: part(name, precision))


def same_bytes(work, train):
    """Checks that a CUDA graph, op by op, and a repeated run give the same parameters, bit for bit."""
    def part(name, flags):
        first = train("cuda", *flags)
        others = {"repeated": train("cuda", *flags), "without a graph": train("cuda", *flags, "--no-cuda-graph")}
        work.found[name] = {
            "steps": len(first.losses),
            "parameters_hash": first.parameters_hash,
            "warnings": first.warnings
        }
        for what, other in others.items():
            if other.losses != first.losses or other.tensors != first.tensors:
                raise Failed(f"{what}: losses differ by {worst_difference(other.losses, first.losses):.1e}, parameters "
                             f"{other.parameters_hash} and {first.parameters_hash}")
        if any("graph" in warning for warning in first.warnings):
            raise Failed("; ".join(first.warnings))

    model = "lenet" if work.quick else "resnet20"
    for precision in ("fp32", "bf16", "fp16"):
        flags = ("--model", model, "--max-steps", 9, "--batch-size", 24, "--precision", precision, "--deterministic")
        name = f"{model} {precision}, same bytes with a graph, op by op, and repeated"
        work.trial(name, lambda name=name, flags=flags: part(name, flags))


def run(work):
    need_device(work)
    with tempfile.TemporaryDirectory() as directory:
        train = Trainer(work, directory)
        compare_with_cpu(work, train)
        each_precision(work, train)
        same_bytes(work, train)
