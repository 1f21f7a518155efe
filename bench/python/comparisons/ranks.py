"""Compares training steps of several single-threaded ranks with one rank of as many threads, in alternating runs.

    python3 bench/python/compare.py ranks --model resnet18 --batch-size 128

Both sides use the same cores and the same global batch. Several ranks additionally reduce gradients, and each has a
smaller batch. A round is one run of convoy-bench-step with mpirun and one without; the ratio is computed per round.
Needs mpirun, but not PyTorch.
"""

import os
import shlex

from comparisons.harness import (Unavailable, at_least, collect_rounds, format_spread, ratios_by_round, run_for_json,
                                 spread)

PROGRAM = "convoy-bench-step"


def step_command(arguments, threads):
    return [arguments.convoy, "--model", arguments.model, "--image-size", arguments.image_size, "--batch-size",
            arguments.batch_size, "--device", "cpu", "--precision", arguments.precision, "--threads", threads,
            "--steps", arguments.steps, "--rounds", arguments.windows, "--warmup", arguments.warmup]


def compare(arguments, left):
    commands = {
        "ranks": [*shlex.split(arguments.mpirun), "-n", arguments.ranks, *step_command(arguments, 1)],
        "threads": step_command(arguments, arguments.ranks)
    }

    def run_round(_):
        found = {}
        for side, command in commands.items():
            report = run_for_json(command, left())
            ranks = arguments.ranks if side == "ranks" else 1
            if report["world_size"] != ranks:
                raise Unavailable(f"found a world size of {report['world_size']} with {ranks} processes: "
                                  f"{report['ranks']}")
            found[side] = report["images_per_second"]["median"]
        return found

    found = collect_rounds(arguments.rounds, left, run_round)
    rates = {side: [each[side] for each in found] for side in commands}
    return {"model": arguments.model, "image_size": arguments.image_size, "batch_size": arguments.batch_size,
            "precision": arguments.precision, "ranks": arguments.ranks, "rounds": len(found),
            "images_per_second": {side: spread(each) for side, each in rates.items()},
            "ratio": ratios_by_round(rates["ranks"], rates["threads"])}


def print_figures(figures):
    ranks = figures["ranks"]
    print(f"{figures['model']}, {figures['image_size']} pixels, batch {figures['batch_size']}, {figures['precision']}, "
          f"median of {figures['rounds']} rounds (minimum to maximum)")
    print(f"  {ranks} ranks of 1 thread  {format_spread(figures['images_per_second']['ranks'], 1)} images/s")
    print(f"  1 rank of {ranks} threads  {format_spread(figures['images_per_second']['threads'], 1)} images/s")
    print(f"  ratio                {format_spread(figures['ratio'], 3)}")


def add_flags(flags):
    flags.add_argument("--mpirun", default="mpirun", help="launcher and its flags, without -n; default: mpirun")
    flags.add_argument("--ranks", type=at_least(2), default=len(os.sched_getaffinity(0)), help="default: number of cores")
    flags.add_argument("--model", default="resnet18")
    flags.add_argument("--image-size", type=at_least(1), default=32)
    flags.add_argument("--batch-size", type=at_least(1), default=128, help="global batch size (images)")
    flags.add_argument("--precision", default="fp32")
    flags.add_argument("--steps", type=at_least(1), default=1, help="steps per window")
    flags.add_argument("--windows", type=at_least(1), default=5, help="windows per side and round")
    flags.add_argument("--warmup", type=at_least(0), default=3, help="warm-up windows per run")
    flags.add_argument("--rounds", type=at_least(1), default=5)


def check(arguments):
    """Accepts what the parser accepts."""
