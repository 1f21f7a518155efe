#!/usr/bin/env python3
"""Measures how long a training takes to start, and its memory, with and without --image-cache.

    python3 bench/python/measure_starts.py --data data/photographs --image-size 224

A start is `convoy-train --dry-run`: the images are read, and one batch is trained. Each is done by one process, and by
--ranks processes that divide the --workers. The cache is removed before the first start with it. Memory is the largest
of any process: RssAnon is its own, and RssFile is that of mapped files, which the processes of a host share.
"""

import argparse
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from comparisons.harness import at_least, rank_environments

FIELDS = ("VmHWM", "RssAnon", "RssFile")


def memory_of(process):
    """Returns the memory of a process in bytes by field; nothing if it has ended."""
    try:
        lines = pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return {}
    fields = (line.partition(":") for line in lines)
    return {name: int(rest.split()[0]) * 1024 for name, _, rest in fields if name in FIELDS}


def start(arguments, ranks, flags):
    """Returns the seconds until all ranks have ended, and the largest memory of one by field."""
    command = [arguments.convoy, "--dry-run", "--quiet", "--dataset", "folder", "--data", str(arguments.data),
               "--image-size", str(arguments.image_size), "--model", "resnet20", "--batch-size", "8", "--device", "cpu",
               "--threads", "1", "--workers", str(max(1, arguments.workers // ranks)), *flags]
    began = time.monotonic()
    processes = [subprocess.Popen(command, stdout=subprocess.DEVNULL, env=environment)
                 for environment in rank_environments(ranks)]
    largest = dict.fromkeys(FIELDS, 0)
    while any(process.poll() is None for process in processes):
        for process in processes:
            for field, value in memory_of(process).items():
                largest[field] = max(largest[field], value)
        time.sleep(0.01)
    if any(process.returncode for process in processes):
        raise SystemExit(f"measure_starts: {' '.join(command)} failed")
    return time.monotonic() - began, largest


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--convoy", default="build/release/bin/convoy-train")
    flags.add_argument("--data", type=pathlib.Path, required=True, help="folder with train/CLASS/* and test/CLASS/*")
    flags.add_argument("--image-size", type=at_least(1), default=224, help="pixels per side")
    flags.add_argument("--cache", type=pathlib.Path, help="parent of the cache's directory; default: $TMPDIR or /tmp")
    flags.add_argument("--ranks", type=at_least(1), default=2)
    flags.add_argument("--workers", type=at_least(1), default=len(os.sched_getaffinity(0)), help="default: number of cores")
    arguments = flags.parse_args()
    if shutil.which(arguments.convoy) is None:
        flags.error(f"--convoy: found no program {arguments.convoy}")
    for name, directory in (("--data", arguments.data / "train"), ("--cache", arguments.cache)):
        if directory and not directory.is_dir():
            flags.error(f"{name}: found no directory {directory}")
    cache = pathlib.Path(tempfile.mkdtemp(prefix="convoy-starts-", dir=arguments.cache))
    print(f"{'':34s}{'seconds':>9s}" + "".join(f"{field + ' (MiB)':>15s}" for field in FIELDS))
    try:
        for ranks in (1, arguments.ranks):
            shutil.rmtree(cache)
            for name, more in (("without a cache", []), ("first start with a cache", ["--image-cache", str(cache)]),
                               ("second start with a cache", ["--image-cache", str(cache)])):
                seconds, memory = start(arguments, ranks, more)
                print(f"{name + f', {ranks} rank' + 's' * (ranks > 1):34s}{seconds:9.2f}" +
                      "".join(f"{memory[field] / 2**20:15.0f}" for field in FIELDS), flush=True)
    finally:
        shutil.rmtree(cache, ignore_errors=True)


if __name__ == "__main__":
    main()
