#!/usr/bin/env python3
"""The first hour on a machine with several GPUs: measures what docs/many-gpus.md lists, and says what should be higher.

    python3 scripts/many_gpus.py --ranks 8 --build build/cuda --out many-gpus

One process per GPU. Each measurement prints its figure, what it should be, and where to look if it is not. All output
of the programs and results.json go to --out. Exit code 0: all figures are as expected; 1: one is not; 3: none is
unexpected, but a program failed.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

sys.dont_write_bytecode = True

# convoy-launch begins each line with the rank.
RATE = re.compile(r"^(?:\[0\])?\W*rate\W+([\d.,]+) images/s", re.MULTILINE)
ROW = re.compile(r"^(?:\[0\])? +(\d+) +\d+ +\w+ +\w+ +-?\d+ +[\d.]+ +[\d.]+ +[\d.]+ +\d+"  # size … out of place
                 r" +([\d.]+) +[\d.]+ +([\d.]+) +(\d+)", re.MULTILINE)  # in place: time, bandwidths, wrong sums
# Minimum bus bandwidth of an all-reduce of 128 MiB in GB/s, and maximum time of 8 bytes in us, by what joins the GPUs.
LINKS = {"nvlink": (300, 40), "pcie": (10, 80), "emulated": (0, 1e6)}
CTAS = (4, 8, 16)


def number(text):
    return float(text.replace(",", ""))


class Hour:
    def __init__(self, options):
        self.options = options
        self.links = options.links or ("nvlink" if has_nvlink() else "pcie")
        self.rows, self.failed = [], False
        options.out.mkdir(parents=True, exist_ok=True)

    def run(self, name, ranks, program, *flags):
        """Returns what a program prints on that many GPUs, or "" if it failed."""
        programs = self.options.build / "bin"
        launcher = () if ranks == 1 else (programs / "convoy-launch", "--ranks", ranks)
        words = [str(word) for word in (*launcher, programs / program, *flags)]
        file = self.options.out / f"{len(list(self.options.out.iterdir())):02d}-{name}.txt"
        try:
            done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=self.options.limit)
            out, err, code = done.stdout, done.stderr, done.returncode
        except subprocess.TimeoutExpired as late:
            out, err, code = str(late.stdout or ""), str(late.stderr or ""), "none: the time limit"
        file.write_text(f"$ {' '.join(words)}\n{out}\n{err}\n[code {code}]\n")
        if code != 0:
            print(f"{name}: code {code}, see {file}", flush=True)
            self.failed = True
            return ""
        return out

    def add(self, name, found, minimum=None, maximum=None, where=""):
        """Adds a figure, and compares it with what it should be."""
        wanted = f"at least {minimum:g}" if minimum is not None else f"at most {maximum:g}" if maximum is not None else ""
        good = not ((minimum is not None and found < minimum) or (maximum is not None and found > maximum))
        self.rows.append({"name": name, "found": found, "expected": wanted, "as_expected": good})
        expected = f", expected {wanted}" if wanted else ""
        print(f"{name}: {found:g}{expected}{'' if good else '; ' + where}", flush=True)

    def rate(self, name, ranks, *flags):
        """Returns the images per second of a step of ResNet-18 with 128 images per GPU, or None."""
        small = ("--model", "lenet", "--steps", 1, "--rounds", 1) if self.options.quick else ("--precision", "bf16")
        batch = (4 if self.options.quick else 128) * ranks
        out = self.run(name, ranks, "convoy-bench-step", "--device", "cuda", "--batch-size", batch, *small, *flags)
        found = RATE.search(out)
        return number(found.group(1)) if found else None

    def all_reduce(self):
        sizes = ("-b", "8", "-e", "64K" if self.options.quick else "128M", "-f", "16")
        minimum, latency = LINKS[self.links]
        out = self.run("all-reduce", self.options.ranks, "convoy-bench-allreduce", "--device", "cuda", *sizes)
        rows = [(int(size), float(us), float(busbw), int(wrong)) for size, us, busbw, wrong in ROW.findall(out)]
        if not rows:
            return
        self.add("wrong sums", sum(row[3] for row in rows), maximum=0,
                 where="another NCCL or driver; NCCL_P2P_DISABLE=1 to compare")
        self.add("all-reduce of 8 bytes, us", rows[0][1], maximum=latency,
                 where="NCCL_DEBUG=INFO: which algorithm and protocol?")
        self.add(f"bus bandwidth at {rows[-1][0]} bytes, GB/s", rows[-1][2], minimum=minimum,
                 where="nvidia-smi topo -m; NCCL_DEBUG=INFO: NVLS or P2P, and not SHM or NET?")

    def scaling(self):
        ranks = self.options.ranks
        alone, together = self.rate("one-gpu", 1), self.rate("all-gpus", ranks)
        if not alone or not together:
            return
        floor = None if self.options.quick else 0.9
        self.add("images/s on one GPU", alone)
        self.add(f"images/s on {ranks} GPUs", together)
        self.add("of linear scaling", together / (ranks * alone), minimum=floor,
                 where="convoy-train --trace: is the last bucket exposed?")
        settings = {f"ctas-{ctas}": ("--nccl-ctas", ctas) for ctas in CTAS} | {"op-by-op": ("--no-cuda-graph",)}
        for name, flags in settings.items():
            if found := self.rate(name, ranks, *flags):
                self.add(f"{name}, of the default", found / together)

    def repeats(self):
        """Two deterministic trainings end with the same bytes."""
        hashes = set()
        for name in ("first", "second"):
            run = self.options.out / f"run-{name}"
            size = ("lenet", 4, 3) if self.options.quick else ("resnet18", 128, 50)
            self.run(f"deterministic-{name}", self.options.ranks, "convoy-train", "--device", "cuda", "--deterministic",
                     "--model", size[0], "--dataset", "shapes", "--batch-size", size[1] * self.options.ranks,
                     "--max-steps", size[2], "--eval-every", 0, "--out", run)
            log = run / "log.jsonl"
            lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
            hashes |= {line["parameters_hash"] for line in lines if "parameters_hash" in line}
        if hashes:
            self.add("results of two deterministic trainings", len(hashes), maximum=1,
                     where="NCCL_ALGO=Ring is set; NCCL_PROTO, NCCL_MAX_CTAS?")


def has_nvlink():
    try:
        topology = subprocess.run(["nvidia-smi", "topo", "-m"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return False
    return re.search(r"\bNV\d+\b", topology) is not None


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=8, help="GPUs, one process each (default: 8)")
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build/cuda"),
                        help="build directory (default: build/cuda)")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("many-gpus"),
                        help="output directory (default: many-gpus)")
    parser.add_argument("--links", choices=LINKS, help="what joins the GPUs (default: what nvidia-smi topo -m shows)")
    parser.add_argument("--limit", type=float, default=600, help="time limit of each program (seconds)")
    parser.add_argument("--quick", action="store_true", help="rehearsal with tiny sizes, for emulated GPUs")
    options = parser.parse_args()
    if options.ranks < 2:
        parser.error(f"--ranks: found {options.ranks}, expected 2 or more")
    if not (options.build / "bin" / "convoy-launch").exists():
        parser.error(f"--build: no programs in {options.build / 'bin'}")
    return options


def main():
    options = parse()
    os.environ.setdefault("CONVOY_SECRET", os.urandom(16).hex())
    hour = Hour(options)
    hour.run("doctor", options.ranks, "convoy-doctor", "--device", "cuda")
    for measure in (hour.all_reduce, hour.scaling, hour.repeats):
        measure()
    results = {"ranks": options.ranks, "links": hour.links, "figures": hour.rows}
    (options.out / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    return 1 if any(not row["as_expected"] for row in hour.rows) else 3 if hour.failed else 0


if __name__ == "__main__":
    sys.exit(main())
