"""Common code of measurements: processes and their memory, time limits, statistics over rounds, and tables."""

import argparse
import contextlib
import json
import os
import pathlib
import queue
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PYTORCH = pathlib.Path(__file__).resolve().parent.parent  # directory of the PyTorch sides, pytorch_*.py
ROUND_SECONDS = 3  # a new round needs the duration of the longest one and this reserve
PATIENCE_SECONDS = 5  # that a program has to exit after a signal


def at_least(minimum, kind=int):
    """Returns an argparse type: a number of this kind that is `minimum` or more."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or not minimum <= value < float("inf"):
            whole = "a whole number, " if kind is int and value is None else ""
            raise argparse.ArgumentTypeError(f"found {text}, expected {whole}{minimum} or more")
        return value

    return parse


class Unavailable(Exception):
    """The reason why a side was not measured, in one line."""


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


def reason(text):
    """Returns why a program failed, in one line of its output.

    That is its error message if it has one, else the message of mpirun between lines of dashes, else the last line.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    errors = [line for line in lines if ": error: " in line]
    frames = [i for i, line in enumerate(lines) if len(line) > 20 and set(line) == {"-"}]
    if errors:
        return errors[0]
    if len(frames) > 1:
        return " ".join(line for line in lines[frames[0] + 1:frames[1]] if line)
    return last_line(text)


def cpu_info(field):
    """Returns the value of the first such line of /proc/cpuinfo; empty if there is none."""
    found = re.search(rf"^{field}\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1).strip() if found else ""


class Finished:
    """A process that has exited: its exit code, output, and peak resident memory in bytes."""

    def __init__(self, code, out, err, peak_resident_bytes):
        self.code, self.out, self.err, self.peak_resident_bytes = code, out, err, peak_resident_bytes


def run_to_end(command, seconds, environment=None):
    """Runs a program. Raises Unavailable if it cannot be started, takes longer than `seconds`, or fails.

    The memory is ru_maxrss as counted by the kernel. It includes the memory of this process at the fork, about 20 MB.
    """
    words = [str(word) for word in command]
    name = os.path.basename(words[0])
    # The output goes to files, because a pipe without a reader would fill up.
    with tempfile.TemporaryFile("w+", errors="replace") as out, tempfile.TemporaryFile("w+", errors="replace") as err:
        try:
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=out, stderr=err,
                                       env={**os.environ, **(environment or {})})
        except OSError as problem:
            raise Unavailable(f"{name}: {problem.strerror}") from None
        late, ended = threading.Event(), threading.Event()

        def stop():
            late.set()
            for number in (signal.SIGTERM, signal.SIGKILL):  # on SIGTERM, mpirun ends its ranks
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
    """Returns the JSON that a program writes to the file named by `flag`. The flag may end with '='."""
    with tempfile.TemporaryDirectory() as directory:
        report = os.path.join(directory, "figures.json")
        extra = [flag + report] if flag.endswith("=") else [flag, report]
        run_to_end([*command, *extra], seconds, environment)
        with open(report) as file:
            return json.load(file)


@contextlib.contextmanager
def busy_processes(count):
    """Runs `count` other processes meanwhile, each with one thread that never waits."""
    processes = []
    try:
        for _ in range(count):
            processes.append(subprocess.Popen([sys.executable, "-c", "while True: pass"], stdin=subprocess.DEVNULL))
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()


def rank_environments(count):
    """Returns the environment of each of `count` ranks on this host, with torchrun's variables and a free port."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    return [{**os.environ, "RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
             "MASTER_PORT": str(port)} for rank in range(count)]


class Peer:
    """A warm Python process that answers each line of input with one line of JSON."""

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
        """Returns the next line of output, and the seconds from the start of the process until it was received."""
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


@contextlib.contextmanager
def started_peers(sides, start, warm_up):
    """Yields ({side: peer}, {side: reason why it was left out}), and closes the peers afterwards.

    `start` returns the peer of a side and `warm_up` prepares it, one after another, so that none disturbs another.
    """
    peers, left_out = {}, {}
    try:
        for side in sides:
            peers[side] = start(side)
            try:
                warm_up(side, peers[side])
            except Unavailable as problem:
                peers.pop(side).close()
                left_out[side] = str(problem)
        yield peers, left_out
    finally:
        for peer in peers.values():
            peer.close()


def spread(values):
    """Returns the median, minimum and maximum of the values."""
    return {"median": statistics.median(values), "lowest": min(values), "highest": max(values)}


def ratios_by_round(numerators, denominators):
    """Returns the spread of the ratios per round. Other load on the machine affects both sides of a round."""
    return spread([above / below for above, below in zip(numerators, denominators)])


def format_spread(figures, digits=2):
    """Formats a spread: 2.41 (2.35 to 2.44)."""
    return f"{figures['median']:.{digits}f} ({figures['lowest']:.{digits}f} to {figures['highest']:.{digits}f})"


class Deadline:
    """A deadline after a number of seconds; one day if None."""

    def __init__(self, seconds):
        self.end = time.monotonic() + (seconds or 86400)

    def left(self):
        return self.end - time.monotonic()


def collect_rounds(count, left, run_round):
    """Returns the results of run_round(i) for one round, and for more rounds, up to `count`, while time is left.

    A round that fails because time ran out is dropped. Raises Unavailable if that is the first round.
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


def write_json(file, figures):
    """Writes the results to `file`; does nothing if it is None."""
    if file:
        file.write_text(json.dumps(figures, indent=2) + "\n")


def events_of(log, name):
    """Returns the events of this name in the text of a log.jsonl."""
    return [event for event in map(json.loads, log.splitlines()) if event["event"] == name]


def last_event(log, name):
    """Returns the last event of this name in the file log.jsonl. Raises Unavailable if it has none."""
    found = events_of(log.read_text(), name)
    if not found:
        raise Unavailable(f"convoy-train: found no event '{name}' in its log")
    return found[-1]


def table(head, rows):
    """Returns the lines of a Markdown table."""
    def cell(text):
        return " ".join(str(text).split()).replace("|", "\\|")

    lines = [f"| {' | '.join(map(cell, row))} |" for row in (head, *rows)]
    return [lines[0], "|" + "---|" * len(head), *lines[1:]]
