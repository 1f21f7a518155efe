"""Answers questions of the kind "is B faster than A?": runs two commands in turn, and compares medians and spreads."""

import dataclasses
import functools
import os
import pathlib
import re
import statistics

from gpu_validation.environment import need_device
from gpu_validation.work import Failed, NotHere, last_line

# The open questions. Each line has a name, how many times as fast as A the command B should be, and both commands.
FILE = pathlib.Path(__file__).with_name("hypotheses.txt")
FIGURE = re.compile(r"^(?:\[0\])?\W*step\W+([\d.,]+) ms", re.MULTILINE)  # of convoy-bench-step
PAIRS, QUICK_PAIRS = 5, 2
QUICK_FLAGS = " --model lenet --batch-size 4 --precision fp32 --steps 1 --rounds 1 --warmup 3"


@dataclasses.dataclass
class Hypothesis:
    name: str
    expected: float
    commands: tuple


def read(text):
    """Returns the hypotheses in a text. Raises Failed for a line that is none."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        parts = [part.strip() for part in line.split("|")]
        try:
            name, expected, a, b = parts
            found.append(Hypothesis(name, float(expected), (a, b)))
        except ValueError:
            raise Failed(f"hypotheses, line {number}: found '{line}', expected NAME | RATIO | COMMAND A | COMMAND B") from None
    return found


def milliseconds(work, command):
    """Runs a shell command and returns the milliseconds that it prints."""
    done = work.run(["bash", "-c", command + (QUICK_FLAGS if work.quick else "")],
                    env={**os.environ, "BIN": str(work.programs)})
    found = FIGURE.search(done.stdout)
    if done.returncode != 0 or not found:
        raise Failed(f"'{command}' ended with code {done.returncode}: {last_line(done.stderr or done.stdout)}")
    return float(found.group(1).replace(",", ""))


def verdict(expected, ratios):
    """Returns what the ratios A / B of the pairs say about an expected one."""
    if min(ratios) >= expected:
        return "confirmed"
    return "refuted" if max(ratios) < expected else "unclear"


def test(work, hypothesis):
    times = ([], [])
    for _ in range(QUICK_PAIRS if work.quick else PAIRS):
        if times[0] and work.left() < 2 * sum(side[-1] for side in times) / 1e3:
            break
        for side, command in zip(times, hypothesis.commands):  # in turn: the clocks of a GPU drift
            side.append(milliseconds(work, command))
    ratios = [a / b for a, b in zip(*times)]
    work.found[hypothesis.name] = {
        "pairs": len(ratios), "expected": hypothesis.expected, "verdict": verdict(hypothesis.expected, ratios),
        "ratio": statistics.median(ratios), "lowest": min(ratios), "highest": max(ratios),
        **{name: {"command": command, "ms": statistics.median(side), "each": side}
           for name, command, side in zip("ab", hypothesis.commands, times)}}


def run(work):
    need_device(work)
    hypotheses = read((work.options.get("hypotheses") or FILE).read_text())
    if not hypotheses:
        raise NotHere("the file has no hypothesis")
    work.trials({each.name: functools.partial(test, work, each) for each in hypotheses})
