#!/usr/bin/env python3
"""Runs the tests that cause faults, and prints what came of them as a table: docs/reliability.md has it.

    CONVOY_DATA=DIR python3 scripts/reliability_table.py --build build/test --times 5

The tests with two hosts need root, and CIFAR-10 in DIR/cifar10; skipped tests are listed.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import sys

TESTS = ("KilledRanks|StoppedRanks|OutputFaults|VanishedOutput|Links.*Down|KilledMpirun.*2Then2|ConvoyLaunch.Resumes|"
         "Continuation.Gives|TwoHostTraining.Name|TwoHostTraining.Stop")
HEADER = ["fault", "tried", "how it ends", "seconds: median (most)", "lost"]


def parse(lines):
    """Returns {(fault, end, lost): [seconds]} of the lines that tests have printed."""
    rows = {}
    for line in lines:
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != 5 or not fields[0].endswith("fault"):
            continue
        _, fault, seconds, end, lost = fields
        rows.setdefault((fault, end, lost), []).append(float(seconds))
    return rows


def skipped(lines):
    """Returns the names of the tests that were skipped."""
    return {line.split("***Skipped")[0].split(":", 1)[1].strip(" .") for line in lines if "***Skipped" in line}


def format_table(rows):
    lines = ["| " + " | ".join(HEADER) + " |", "|---|---|---|---|---|"]
    for (fault, end, lost), seconds in sorted(rows.items()):
        time = f"{statistics.median(seconds):.2g} ({max(seconds):.2g})"
        lines.append(f"| {fault} | {len(seconds)} | {end} | {time} | {lost} |")
    return "\n".join(lines)


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/test"))
    flags.add_argument("--times", type=int, default=5, help="repetitions of each test")
    arguments = flags.parse_args()
    if arguments.times < 1:
        flags.error(f"--times: found {arguments.times}, expected 1 or more")
    if not (arguments.build / "CTestTestfile.cmake").is_file():
        flags.error(f"--build: found no tests in {arguments.build}; run cmake --preset test && cmake --build build/test")
    command = ["ctest", "--test-dir", arguments.build, "-V", "-R", TESTS, "-LE", "soak", "--repeat",
               f"until-fail:{arguments.times}"]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ)
    rows = parse(done.stdout.splitlines())
    print(format_table(rows))
    for test in sorted(skipped(done.stdout.splitlines())):
        print(f"skipped: {test}", file=sys.stderr)
    if done.returncode != 0 or not rows:
        sys.exit("some tests have failed:\n" + "\n".join(done.stdout.splitlines()[-20:]))


if __name__ == "__main__":
    main()
