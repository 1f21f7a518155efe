"""The context of a stage: programs, remaining time, and results."""

import concurrent.futures
import contextlib
import json
import os
import pathlib
import re
import shlex
import signal
import subprocess
import sys
import tempfile
import threading
import time

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "python"
sys.path.insert(0, str(BENCH))
from comparisons.harness import last_line  # noqa: E402


class Failed(Exception):
    """An error that ends a stage, described in one line."""


class NotHere(Exception):
    """A reason why a stage cannot run on this machine, in one line. It is not an error of Convoy."""


class Work:
    """One run of a stage. `found` is written to the JSON file even if the stage fails or runs out of time."""

    def __init__(self, programs, seconds, python, quick=False, raw=None, **options):
        self.programs = pathlib.Path(programs)  # directory of the built programs
        self.raw = raw  # directory for what the programs print and for profiles; None: they are not kept
        self.options = options  # those of validate_gpu.py that only some stages read
        self.python = python  # the interpreter that may have PyTorch
        self.quick = quick
        self.end = time.monotonic() + seconds
        self.lock = threading.Lock()
        self.found = {}
        self.problems = []
        self.left_out = []

    def left(self):
        return self.end - time.monotonic()

    def keep(self, name, content):
        """Stores bytes in the directory of raw results, under a name that no other file there has."""
        if self.raw is None:
            return
        self.raw.mkdir(parents=True, exist_ok=True)
        name = re.sub(r"[^\w.=-]+", "-", name).strip("-")
        with self.lock:
            number = len(list(self.raw.iterdir()))
            (self.raw / f"{number:03d}-{name}").write_bytes(content)

    def run(self, command, limit=None, **options):
        """Returns the finished process; raises Failed after `limit` seconds, or when the stage's time is over. No
        process that it has started is left then."""
        words = [str(word) for word in command]
        name = pathlib.Path(words[0]).name
        seconds = self.left() if limit is None else min(limit, self.left())
        if seconds <= 0:
            raise Failed(f"{name}: no time left")
        try:
            process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       errors="replace", start_new_session=True, **options)
        except OSError as error:
            raise Failed(f"{name}: {error.strerror}") from None
        out = err = ""
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as late:
            out, err = (text.decode(errors="replace") if isinstance(text, bytes) else text or ""
                        for text in (late.stdout, late.stderr))
            raise Failed(f"{name}: not done after {seconds:.0f} s") from None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # the session of the process, so its children too
            process.wait()
            process.stdout.close()
            process.stderr.close()
            self.keep(f"{name}.txt", f"$ {shlex.join(words)}\n{out}\n{err}\n[code {process.returncode}]\n".encode())
        return subprocess.CompletedProcess(words, process.returncode, out, err)

    def compare(self, name, flags):
        """Returns the results of a subcommand of bench/python/compare.py on the GPU. Raises Failed if it fails."""
        with tempfile.TemporaryDirectory() as directory:
            report = pathlib.Path(directory) / "figures.json"
            done = self.run([self.python, BENCH / "compare.py", name, "--convoy", self.programs / "convoy-train",
                             "--device", "cuda", "--json", report, *flags])
            if done.returncode != 0:
                raise Failed(last_line(done.stderr))
            return json.loads(report.read_text())

    def max_concurrent(self, limit):
        """Returns how many processes may share the processor and the GPU if only correctness matters."""
        return max(1, min(limit, len(os.sched_getaffinity(0)) // 4))

    def trials(self, parts, concurrent_parts=1):
        """Runs the parts {name: function} of a stage, `concurrent_parts` of them at once."""
        with concurrent.futures.ThreadPoolExecutor(concurrent_parts) as pool:
            for running in [pool.submit(self.trial, name, part) for name, part in parts.items()]:
                running.result()

    def trial(self, name, part):
        """Runs one part of a stage. A failure is recorded, and the stage continues."""
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
    """Runs a stage and returns its entry for the JSON file."""
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
