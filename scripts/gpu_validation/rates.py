"""Compares training rates with PyTorch (bench/python/compare.py step), and the time to the first step."""

import functools
import re

from gpu_validation.environment import need_device
from gpu_validation.losses import need_pytorch
from gpu_validation.work import NotHere

EAGER, COMPILED, REDUCED = "eager:channels_last", "max-autotune:channels_last", "reduce-overhead:channels_last"


def case(name, flags, seconds, **goals):
    return {"name": name, "flags": flags, "seconds": seconds, "goals": goals}


# Goals: minimum ratios to PyTorch's images per second, minimum images per second, and a maximum ratio of memory.
CASES = (
    case("resnet18_128", ("--model", "resnet18", "--batch-size", 128, "--precision", "bf16", "--steps", 100),
         430,
         eager=2.0,
         compiled=1.15,
         images_per_second=100e3),
    case("resnet18_512", ("--model", "resnet18", "--batch-size", 512, "--precision", "bf16", "--steps", 30),
         90,
         compiled=1.1,
         memory=0.7),
    case("resnet18_1024", ("--model", "resnet18", "--batch-size", 1024, "--precision", "bf16", "--steps", 15),
         70,
         compiled=1.1),
    case("resnet50_256", ("--model", "resnet50", "--image-size", 224, "--batch-size", 256, "--precision", "bf16",
                          "--steps", 8, "--rounds", 3),
         110,
         compiled=1.2),
    case("lenet_128", ("--model", "lenet", "--batch-size", 128, "--precision", "fp32", "--steps", 300), 50),
)


def goal_rows(goals, figures):
    """Returns [name, measured or None, goal, reached or None] for each goal."""
    sides, ratios = figures["sides"], figures["ratios"]
    rows = []

    def add(what, measured, goal, at_most=False):
        reached = None if measured is None else measured <= goal if at_most else measured >= goal
        rows.append([what, measured, goal, reached])

    for key, side in (("eager", EAGER), ("compiled", COMPILED)):
        if key in goals:
            add(f"times PyTorch, {key}", ratios.get(side), goals[key])
    if "images_per_second" in goals:
        add("images/s", sides["convoy"]["images_per_second"], goals["images_per_second"])
    if "memory" in goals:
        pytorch_bytes = sides.get(EAGER, {}).get("peak_bytes")
        add("of PyTorch's peak memory, eager", sides["convoy"]["peak_bytes"] / pytorch_bytes if pytorch_bytes else None,
            goals["memory"], True)
    return rows


def note_missing_sides(work, missing):
    """A side without time left is left out. A side that failed is a problem."""
    for side, why in missing.items():
        (work.left_out if re.search(r" after \d+ s$", why) else work.problems).append(f"{side}: {why}")


def add_stored(figures, stored):
    """Adds PyTorch's sides as measured earlier on such a GPU, with the ratios to them."""
    figures["stored"] = {key: stored[key] for key in ("date", "torch")}
    for side, entry in stored["sides"].items():
        figures["sides"][side] = {"lowest": None, "highest": None, "rounds": 0, "peak_resident_bytes": 0, **entry}
        figures["ratios"][side] = figures["sides"]["convoy"]["images_per_second"] / entry["images_per_second"]


def run_case(chosen, work):
    """PyTorch's figures change with PyTorch and not with Convoy, so they are measured only if they are questioned
    (--questioned), or if there are none of this GPU."""
    need_device(work)
    flags = list(chosen["flags"])
    stored = work.options.get("pytorch", {}).get(chosen["name"])
    if f"rate_{chosen['name']}" in work.options.get("questioned", ()):
        stored = None
    if work.quick:  # PyTorch cannot use emulated GPUs
        flags += [
            "--batch-size", 4, "--steps", 2, "--windows", 1, "--warmup", 1, "--rounds", 1, "--image-size", 32,
            "--sides", "", "--model", "lenet"
        ]
    elif stored:
        flags += ["--sides", ""]
    else:
        need_pytorch(work)
        flags += ["--sides", f"{EAGER},{REDUCED},{COMPILED}"]
    figures = work.compare("step", [*flags, "--time-limit", int(work.left() - 3)])
    work.found = figures
    note_missing_sides(work, figures["left_out"])
    if stored and not work.quick:
        add_stored(figures, stored)
    figures["goals"] = goal_rows(chosen["goals"], figures)


def run_cold_start(work):
    need_device(work)
    need_pytorch(work)
    flags = ["--model", "resnet18", "--batch-size", 128, "--precision", "bf16", "--rounds", 3, "--cold-start"]
    if work.quick:
        raise NotHere("PyTorch cannot use emulated GPUs")
    figures = work.compare("step", flags)
    figures["goals"] = [[
        "of PyTorch's seconds to the end of the first step", figures["ratio"], 0.25, figures["ratio"] <= 0.25
    ]]
    work.found = figures


STAGES = tuple((f"rate_{chosen['name']}", functools.partial(run_case, chosen), chosen["seconds"]) for chosen in CASES)
