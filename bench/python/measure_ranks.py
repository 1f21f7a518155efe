#!/usr/bin/env python3
"""Measures how a training with many processes of this machine starts.

    python3 bench/python/measure_ranks.py --build build/release --ranks 128,256,512 --comm shm,tcp

convoy-launch starts LeNet on 256 generated images, for one step. The table has the seconds until rank 0 prints the line
that names the ranks, and until step 1; the TCP segments that this machine has sent until step 1, for each rank (nothing
else should use its network); the largest number of file descriptors of a rank but rank 0, and that of rank 0; and the time
of the cores. Medians of --times starts, and the smallest and largest.
"""

import argparse
import os
import pathlib
import re
import resource
import signal
import statistics
import subprocess
import tempfile
import threading
import time

import generated_images
from comparisons.harness import at_least

IMAGES = 256


def segments():
    """Returns the number of TCP segments that this network namespace has sent."""
    names, values = (line.split() for line in pathlib.Path("/proc/net/snmp").read_text().splitlines()
                     if line.startswith("Tcp:"))
    return int(values[names.index("OutSegs")])


def descriptors_of(program):
    """Returns the number of open descriptors by rank, of the processes that run `program`."""
    found = {}
    for process in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if os.readlink(process / "exe") != str(program):
                continue
            rank = re.search(rb"\0RANK=(\d+)\0", b"\0" + (process / "environ").read_bytes())
            found[int(rank[1])] = len(os.listdir(process / "fd"))
        except (OSError, TypeError):  # it has ended
            continue
    return found


def start(build, data, ranks, comm):
    """Returns what the table has, of one start."""
    program = (build / "bin" / "convoy-train").resolve()
    figures = {"descriptors": 0, "descriptors of rank 0": 0}
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as directory:
        sent, begin, used = segments(), time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
        job = subprocess.Popen(
            [str(build / "bin" / "convoy-launch"), "--ranks", str(ranks), str(program), "--model", "lenet", "--dataset",
             "folder", "--data", str(data), "--device", "cpu", "--threads", "1", "--workers", "0", "--comm", comm,
             "--batch-size", str(max(IMAGES, ranks)), "--max-steps", "1", "--eval-every", "0", "--out", f"{directory}/out"],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True)
        watchdog = threading.Timer(600, lambda: os.killpg(job.pid, signal.SIGKILL))
        watchdog.start()
        lines = []
        for line in job.stdout:
            lines.append(line)
            seconds = time.monotonic() - begin
            if re.match(r"\[0\]\s+ranks ", line):
                figures["ranks line"] = seconds
            if re.match(r"\[0\]\s+step 1/", line):
                figures |= {"step 1": seconds, "segments": (segments() - sent) / ranks}
                counts = descriptors_of(program)
                figures["descriptors of rank 0"] = counts.pop(0, 0)
                figures["descriptors"] = max(counts.values(), default=0)
        watchdog.cancel()
        if job.wait() != 0 or "step 1" not in figures:
            raise SystemExit("measure_ranks: the job failed:\n" + "".join(lines[-10:]))
        now = resource.getrusage(resource.RUSAGE_CHILDREN)
        figures["core seconds"] = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    return figures


def spread(values, digits):
    text = f"{statistics.median(values):.{digits}f}"
    return text if min(values) == max(values) else f"{text} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/release"))
    flags.add_argument("--ranks", default="32,128,256,512", help="numbers of ranks")
    flags.add_argument("--comm", default="shm", help="transports: shm, tcp")
    flags.add_argument("--times", type=at_least(1), default=3)
    arguments = flags.parse_args()
    columns = {"ranks line": 2, "step 1": 2, "segments": 0, "descriptors": 0, "descriptors of rank 0": 0,
               "core seconds": 1}
    print("| ranks, --comm | ranks line, s | step 1, s | segments of a rank | descriptors | of rank 0 | core seconds |")
    print("|---|" + "---|" * len(columns))
    with tempfile.TemporaryDirectory() as directory:
        data = pathlib.Path(directory)
        generated_images.write_dataset(data, 32, IMAGES)
        for comm in arguments.comm.split(","):
            for ranks in map(int, arguments.ranks.split(",")):
                starts = [start(arguments.build, data, ranks, comm) for _ in range(arguments.times)]
                cells = [spread([each[name] for each in starts], digits) for name, digits in columns.items()]
                print(f"| {ranks}, {comm} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
