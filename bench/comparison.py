"""What the comparisons share: processes that are timed in turn, their memory, and figures with their spread."""

import contextlib
import json
import os
import queue
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROUND_SECONDS = 3  # what is left must be more than this and the longest round
PATIENCE_SECONDS = 5  # that a program has to end when it is asked to


class Unavailable(Exception):
    """Why a side has no figure, in one line."""


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


def reason(text):
    """Why a program failed, in one line of what it printed: its own error where it names one, else what mpirun says
    between its lines of dashes, else the last line."""
    lines = [line.strip() for line in text.strip().splitlines()]
    errors = [line for line in lines if ": error: " in line]
    frames = [i for i, line in enumerate(lines) if len(line) > 20 and set(line) == {"-"}]
    if errors:
        return errors[0]
    if len(frames) > 1:
        return " ".join(line for line in lines[frames[0] + 1:frames[1]] if line)
    return last_line(text)


class Finished:
    """A process that has ended: its exit code, what it printed, and the most memory that it had resident, in bytes."""

    def __init__(self, code, out, err, peak_resident_bytes):
        self.code, self.out, self.err, self.peak_resident_bytes = code, out, err, peak_resident_bytes


def run_to_end(command, seconds, environment=None):
    """Runs a program; Unavailable where it cannot be started, takes longer than `seconds`, or fails.

    The memory is the kernel's count (ru_maxrss), which begins with what this process has: some 20 MB.
    """
    words = [str(word) for word in command]
    name = os.path.basename(words[0])
    # Into files: a pipe that nobody reads would fill.
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env={**os.environ, **(environment or {})})
        except OSError as problem:
            raise Unavailable(f"{name}: {problem.strerror}") from None
        late, ended = threading.Event(), threading.Event()

        def stop():
            late.set()
            for number in (signal.SIGTERM, signal.SIGKILL):  # mpirun ends its ranks where it is asked to end
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process.pid, number)
                if ended.wait(PATIENCE_SECONDS):
                    return

        timer = threading.Timer(max(seconds, 0.1), stop)
        timer.start()
        _, status, usage = os.wait4(process.pid, 0)
        ended.set()
        timer.cancel()
        process.returncode = os.waitstatus_to_exitcode(status)
        for stream in (out, err):
            stream.seek(0)
        done = Finished(process.returncode, out.read(), err.read(), usage.ru_maxrss * 1024)
    if late.is_set():
        raise Unavailable(f"{name}: not done after {seconds:.0f} s")
    if done.code != 0:
        raise Unavailable(f"{name}: code {done.code}, {reason(done.err or done.out)}")
    return done


def run_for_json(command, seconds, environment=None, flag="--json"):
    """What a program writes to the file of a flag, which may end with the '=' that belongs before it."""
    with tempfile.TemporaryDirectory() as folder:
        report = os.path.join(folder, "figures.json")
        told = [flag + report] if flag.endswith("=") else [flag, report]
        run_to_end([*command, *told], seconds, environment)
        with open(report) as file:
            return json.load(file)


class Peer:
    """A Python program that waits, warm, until it is asked: a line in, a line of JSON out."""

    def __init__(self, python, program, flags):
        self.errors = tempfile.TemporaryFile(mode="w+")
        self.begin = time.monotonic()
        self.process = subprocess.Popen([str(word) for word in (python, program, *flags)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=self.errors, text=True, bufsize=1)
        self.lines = queue.Queue()  # (seconds from the start, line), and None at the end
        self.reader = threading.Thread(target=self.read)
        self.reader.start()

    def read(self):
        for line in self.process.stdout:
            self.lines.put((time.monotonic() - self.begin, line))
        self.lines.put(None)

    def answer(self, event, seconds):
        """The next line of output, and the seconds from the start of the process to it."""
        try:
            found = self.lines.get(timeout=max(seconds, 0))
        except queue.Empty:
            raise Unavailable(f"no {event} after {time.monotonic() - self.begin:.0f} s") from None
        if found is None:
            self.process.wait()
            self.errors.seek(0)
            raise Unavailable(last_line(self.errors.read()))
        answer = json.loads(found[1])
        if answer["event"] != event:
            raise Unavailable(f"found the event '{answer['event']}', expected '{event}'")
        return answer, found[0]

    def ask(self, line, event, seconds):
        print(line, file=self.process.stdin, flush=True)
        return self.answer(event, seconds)[0]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.errors):
            stream.close()


def spread(values):
    """The median of a measurement's rounds, with the lowest and the highest."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def ratios_by_round(numerators, denominators):
    """Round by round, since what else a machine does meets both sides of a round: the spread of their ratios."""
    return spread([above / below for above, below in zip(numerators, denominators)])


def text_of(figures, digits=2):
    """2.41 (2.35 to 2.44)"""
    return f"{figures['median']:.{digits}f} ({figures['lowest']:.{digits}f} to {figures['highest']:.{digits}f})"


class Deadline:
    """The seconds that are left of a limit; a day where there is none."""

    def __init__(self, seconds):
        self.end = time.monotonic() + (seconds or 86400)

    def left(self):
        return self.end - time.monotonic()


def collect_rounds(count, left, run_round):
    """What run_round(i) found: of one round, and of as many more as there is time for.

    A round that the end of the time cut short is dropped; where that was the first, nobody has a figure.
    """
    found, longest = [], 0
    while len(found) < count and (not found or left() >= longest + ROUND_SECONDS):
        begin = time.monotonic()
        try:
            found.append(run_round(len(found)))
        except Unavailable:
            if not found or left() > 0:
                raise
            break
        longest = max(longest, time.monotonic() - begin)
    return found


def conclude(name, compare, arguments, print_figures):
    """The end of a comparison's main: its figures to --json and to whoever looks on, or one line why there are none."""
    try:
        figures = compare(arguments)
    except Unavailable as problem:
        sys.exit(f"{name}: {problem}")
    write_json(arguments.json, figures)
    print_figures(figures)


def write_json(file, figures):
    """Nothing where no file was asked for."""
    if file:
        file.write_text(json.dumps(figures, indent=2) + "\n")
