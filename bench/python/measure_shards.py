#!/usr/bin/env python3
"""Measures trainings from shards of more images than this machine could store.

    python3 bench/python/measure_shards.py --shards data/photograph-shards --work /tmp/many

--shards has a few shards of convoy-shard. In --work, names of many shards lead to the same files, and an index has their
samples again under each name. The stages, by --stages:

- start: convoy-train until its first step, for a 16th of --samples images and for all: seconds, system calls that ask for
  metadata (by strace; of them those for the data set, as a process needs some hundred to find its libraries), and the
  largest memory of the process. Then --steps steps, and the memory again.
- stops: --stops trainings, each stopped at a random step and continued with another number of ranks: the largest difference
  of a loss from that of an undisturbed run.
- reader: images per second of convoy-bench-loader from a web server that sends at most --megabytes a second, and from the
  directory.
"""

import argparse
import collections
import http.server
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import threading
import time

METADATA = ("access", "faccessat", "faccessat2", "getdents64", "lstat", "newfstatat", "open", "openat", "readlink", "stat",
            "statx", "fstat", "statfs")


def multiply(source, target, samples):
    """Makes a data set of about `samples` training images from the shards in `source`."""
    target.mkdir(parents=True)
    index = json.loads((source / "index.json").read_text())
    for split in index["splits"]:
        times = max(1, round(samples / split["samples"])) if split["name"] == "train" else 1
        content = (source / (split["name"] + ".index")).read_bytes()
        shards, records = content[:16 * split["shards"]], bytearray(content[16 * split["shards"]:])
        with open(target / (split["name"] + ".index"), "wb") as file:
            for copy in range(times):
                for number in range(split["shards"]):
                    first = int.from_bytes(shards[16 * number + 12:16 * number + 16], "little") + copy * split["samples"]
                    file.write(shards[16 * number:16 * number + 12] + first.to_bytes(4, "little"))
                    name = target / f"{split['name']}-{copy * split['shards'] + number:06}.tar"
                    name.symlink_to((source / f"{split['name']}-{number:06}.tar").resolve())
            for copy in range(times):
                if copy > 0:
                    for at in range(4, len(records), 16):
                        shard = int.from_bytes(records[at:at + 4], "little") + split["shards"]
                        records[at:at + 4] = shard.to_bytes(4, "little")
                file.write(records)
        split["class_counts"] = [times * count for count in split["class_counts"]]
        for field in ("samples", "shards", "bytes"):
            split[field] *= times
    (target / "index.json").write_text(json.dumps(index))
    return index["splits"][0]["samples"], index["splits"][0]["shards"]


def training(arguments, data, out, *more):
    return [arguments.bin / "convoy-train", "--dataset", "shards", "--data", str(data), "--model", arguments.model,
            "--image-size", str(arguments.image_size), "--batch-size", str(arguments.batch_size), "--device", "cpu",
            "--epochs", "0", "--eval-every", "0", "--workers", str(arguments.workers), "--quiet", "--out", str(out), *more]


def watched(command):
    """Runs a training. Returns the seconds until its first step, and its largest resident memory in bytes."""
    log = pathlib.Path(command[command.index("--out") + 1]) / "log.jsonl"
    began, first, peak = time.monotonic(), None, 0
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    while process.poll() is None:
        try:
            fields = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{process.pid}/status").read_text().splitlines())
            peak = max(peak, int(fields.get("VmHWM", "0 kB").split()[0]) * 1024)
            if first is None and log.exists() and '"event":"step"' in log.read_text().replace('": "', '":"'):
                first = time.monotonic() - began
        except (OSError, ValueError):
            pass
        time.sleep(0.01)
    if process.returncode:
        raise SystemExit(f"measure_shards: {' '.join(map(str, command))} failed")
    return first, peak


def metadata_calls(command, data):
    """Returns the number of system calls for metadata, by their name, and how many of them name files of the data set."""
    with tempfile.NamedTemporaryFile("r") as report:
        subprocess.run(["strace", "-f", "-qq", "-y", "-e", "trace=" + ",".join("?" + name for name in METADATA), "-o",
                        report.name, *command], check=True, stdout=subprocess.DEVNULL)
        counts, of_data = collections.Counter(), 0
        for line in report.read().splitlines():
            call = re.match(r"\d+ +(\w+)\(", line)  # not "<... resumed>"
            if call:
                counts[call[1]] += 1
                of_data += any(place in line for place in data)
    return counts, of_data


def measure_start(arguments):
    for factor in (1, 16):
        data = arguments.work / f"times-{factor}"
        samples, shards = multiply(arguments.shards, data, factor * arguments.samples // 16)
        print(f"{samples:,} images in {shards:,} shards", flush=True)
        out = arguments.work / f"run-{factor}"
        first, peak = watched(training(arguments, data, out / "a", "--max-steps", "1"))
        print(f"  until the end of step 1: {first:.2f} s, {peak / 2**20:.0f} MiB", flush=True)
        if shutil.which("strace"):
            counts, of_data = metadata_calls(training(arguments, data, out / "b", "--max-steps", "1"),
                                             (str(data.resolve()), str(arguments.shards.resolve())))
            print(f"  metadata calls of a job of one step: {sum(counts.values())} ({dict(counts)}), {of_data} for the data set",
                  flush=True)
        _, peak = watched(training(arguments, data, out / "c", "--max-steps", str(arguments.steps)))
        print(f"  memory of {arguments.steps} steps: {peak / 2**20:.0f} MiB", flush=True)


def losses_of(out):
    events = map(json.loads, (out / "log.jsonl").read_text().splitlines())
    return {event["step"]: event["loss"] for event in events if event["event"] == "step"}


def measure_stops(arguments):
    choose = random.Random(1)
    steps, ends = 12, []
    flags = ["--augment", "flip", "--model", "lenet", "--image-size", "28", "--batch-size", "60", "--log-every", "1", "--threads", "1"]
    whole = arguments.work / "whole"
    subprocess.run(training(arguments, arguments.shards, whole, *flags, "--max-steps", str(steps)), check=True)
    expected = losses_of(whole)
    for number in range(arguments.stops):
        before, after = choose.sample(range(1, 5), 2)
        stop = choose.randrange(1, steps)
        out = arguments.work / f"stop-{number}"
        for ranks, last, more in ((before, stop, []), (after, steps, ["--resume", "auto"])):
            subprocess.run(training(arguments, arguments.shards, out, *flags, *more, "--max-steps", str(last),
                                    *(["--devices", str(ranks)] if ranks > 1 else [])), check=True)
        found = losses_of(out)
        ends.append(max(abs(found[step] - expected[step]) for step in expected))
        shutil.rmtree(out)
    print(f"{len(ends)} stops: the largest difference of a loss is {max(ends):.2g}")


class SlowHandler(http.server.BaseHTTPRequestHandler):
    """Serves parts of files; all threads together send at most `rate` bytes a second."""
    protocol_version = "HTTP/1.1"
    lock, free_at, rate, root = threading.Lock(), 0.0, 0, None

    def do_GET(self):
        path = self.root / self.path.lstrip("/")
        begin, end = self.headers["Range"].removeprefix("bytes=").split("-")
        size = path.stat().st_size
        begin, end = int(begin), min(int(end or size), size - 1) + 1
        self.send_response(206)
        self.send_header("Content-Range", f"bytes {begin}-{end - 1}/{size}")
        self.send_header("Content-Length", str(end - begin))
        self.end_headers()
        with open(path, "rb") as file:
            file.seek(begin)
            for at in range(begin, end, 1 << 16):
                piece = file.read(min(1 << 16, end - at))
                with self.lock:
                    now = time.monotonic()
                    type(self).free_at = max(self.free_at, now) + len(piece) / self.rate
                    wait = self.free_at - now
                time.sleep(wait)
                self.wfile.write(piece)

    def log_message(self, *_):
        pass


def measure_reader(arguments):
    SlowHandler.rate, SlowHandler.root = arguments.megabytes * 1e6, arguments.shards
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), SlowHandler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, place in (("directory", arguments.shards), ("server", f"http://127.0.0.1:{server.server_port}")):
        print(name, flush=True)
        subprocess.run([arguments.bin / "convoy-bench-loader", "--dataset", "shards", "--data", str(place), "--image-size",
                        str(arguments.image_size), "--batch-size", str(arguments.batch_size), "--workers",
                        str(arguments.workers)], check=True)


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--bin", type=pathlib.Path, default=pathlib.Path("build/release/bin"))
    flags.add_argument("--shards", type=pathlib.Path, required=True, help="directory of shards")
    flags.add_argument("--work", type=pathlib.Path, required=True, help="directory for what is made; must not exist")
    flags.add_argument("--stages", default="start,stops,reader")
    flags.add_argument("--samples", type=int, default=1_280_000)
    flags.add_argument("--model", default="resnet20")
    flags.add_argument("--image-size", type=int, default=32)
    flags.add_argument("--batch-size", type=int, default=256)
    flags.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    flags.add_argument("--steps", type=int, default=60, help="steps of a long training")
    flags.add_argument("--stops", type=int, default=50)
    flags.add_argument("--megabytes", type=float, default=50, help="megabytes a second of the server")
    arguments = flags.parse_args()
    arguments.work.mkdir()
    try:
        for stage in arguments.stages.split(","):
            {"start": measure_start, "stops": measure_stops, "reader": measure_reader}[stage](arguments)
    finally:
        shutil.rmtree(arguments.work)


if __name__ == "__main__":
    main()
