"""What a stage works with: the programs, the time that is left, and where findings go."""

import concurrent.futures
import os
import pathlib
import subprocess
import time


class Failed(Exception):
    """A finding that ends a stage, in one line."""


class NotHere(Exception):
    """Why a stage cannot be run on this machine, in one line: no finding about Convoy."""


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


class Work:
    """One stage's run. `found` goes into the JSON file, also where the stage fails or is cut short."""

    def __init__(self, programs, seconds, python, quick=False):
        self.programs = pathlib.Path(programs)  # the folder of the built programs
        self.python = python  # the one that may have PyTorch
        self.quick = quick
        self.end = time.monotonic() + seconds
        self.found = {}
        self.problems = []
        self.left_out = []

    def left(self):
        return self.end - time.monotonic()

    def run(self, command, most=None, **options):
        """The finished process; Failed where it takes longer than `most` seconds, or than the stage has left."""
        words = [str(word) for word in command]
        name = pathlib.Path(words[0]).name
        seconds = self.left() if most is None else min(most, self.left())
        if seconds <= 0:
            raise Failed(f"{name}: no time left for it")
        try:
            return subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=seconds, **options)
        except subprocess.TimeoutExpired:
            raise Failed(f"{name}: not done after {seconds:.0f} s") from None
        except OSError as error:
            raise Failed(f"{name}: {error.strerror}") from None

    def at_once(self, most):
        """How many processes may share the processor and the GPU, where only results count."""
        return max(1, min(most, len(os.sched_getaffinity(0)) // 4))

    def trials(self, parts, at_once=1):
        """Runs the parts {name: function} of a stage, some at once."""
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            for running in [pool.submit(self.trial, name, part) for name, part in parts.items()]:
                running.result()

    def trial(self, name, part):
        """Runs one part of a stage: its failure is noted, and the stage goes on."""
        if self.left() <= 1:
            self.left_out.append(f"{name}: no time left")
            return
        try:
            part()
        except NotHere as reason:
            self.left_out.append(f"{name}: {reason}")
        except Failed as problem:
            self.problems.append(f"{name}: {problem}")


def outcome_of(stage, work):
    """Runs a stage to its entry in the JSON file."""
    begin = time.monotonic()
    try:
        stage(work)
    except NotHere as reason:
        work.left_out.append(str(reason))
    except Failed as problem:
        work.problems.append(str(problem))
    entry = {"outcome": "failed" if work.problems else "left out" if work.left_out else "passed",
             "seconds": round(time.monotonic() - begin, 1)}
    for key in ("problems", "left_out", "found"):
        if getattr(work, key):
            entry[key] = getattr(work, key)
    return entry
