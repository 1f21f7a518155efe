#!/usr/bin/env python3
"""check_cpu_levels.py PROGRAM: trains a few steps with the convoy-train PROGRAM at each level of its package.

A level that this processor lacks must be refused. The other levels must name themselves in the log, each must repeat its
own parameters, and their losses must be equal up to rounding: see BOUND. In fp32 and bf16, which oneDNN computes, they
must be close, and no level may warn.
"""

import json
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile
import zlib

LEVELS = {"x86-64": set(), "x86-64-v3": {"avx2", "fma"}, "x86-64-v4": {"avx512f", "avx512bw", "avx512dq", "avx512vl"}}
STEPS = 5
# A loss of LeNet adds at most 75 + 150 + 400 + 120 + 84 products in a row, and each order of a sum of n terms has a relative
# error of at most n / 2 units of the last place. So two losses of the first step differ by at most 829 2^-52 = 1.8e-13 of the
# terms' size. The gradient has twice as many terms, and each step adds its own.
FIRST = 829 * 2.0**-52
BOUND = [FIRST * (1 + 2 * step) for step in range(STEPS)]
CLOSE = {"fp32": 1e-4, "bf16": 0.1}


def write_images(directory: pathlib.Path) -> None:
    """Writes 32 training images and 4 test images of noise: a program that is not optimized reads a larger set for long."""
    noise = random.Random(3)

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    for split, count in (("train", 16), ("test", 2)):
        for name in ("a", "b"):
            images = directory / split / name
            images.mkdir(parents=True)
            for i in range(count):
                rows = b"".join(b"\0" + noise.randbytes(3 * 32) for _ in range(32))
                chunks = chunk(b"IHDR", struct.pack(">2I5B", 32, 32, 8, 2, 0, 0, 0)), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
                (images / f"{i}.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"".join(chunks))


def train(program: str, level: str, out: pathlib.Path, precision: str = "fp64") -> subprocess.CompletedProcess:
    images = ["--dataset", "folder", "--data", str(out.parent / "images"), "--image-size", "32"]
    flags = ["--model", "lenet", *images, "--precision", precision, "--batch-size", "32", "--seed", "3"]
    run = ["--device", "cpu", "--max-steps", str(STEPS), "--log-every", "1", "--eval-every", "0", "--out", str(out)]
    return subprocess.run([program, *flags, *run, "--cpu-level", level], capture_output=True, text=True)


def events(out: pathlib.Path) -> list:
    return [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def main() -> None:
    program = sys.argv[1]
    features = set(pathlib.Path("/proc/cpuinfo").read_text().partition("flags")[2].partition("\n")[0].split())
    losses, hashes = {}, {}
    with tempfile.TemporaryDirectory() as work:
        write_images(pathlib.Path(work, "images"))
        for level, needed in LEVELS.items():
            for attempt in range(2):
                out = pathlib.Path(work, f"{level}-{attempt}")
                result = train(program, level, out)
                if not needed <= features:
                    assert result.returncode == 2, f"{level}: found exit code {result.returncode}, expected 2"
                    assert "this build has CPU kernels for" in result.stderr, result.stderr
                    print(f"{level}: refused, as this processor lacks {', '.join(sorted(needed - features))}")
                    break
                assert result.returncode == 0, f"{level}: exit code {result.returncode}\n{result.stderr}"
                log = events(out)
                assert log[0]["cpu_level"] == level, f"found {log[0]['cpu_level']}, expected {level}"
                losses[level] = [event["loss"] for event in log if event["event"] == "step"]
                hashes.setdefault(level, set()).add(log[-1]["parameters_hash"])
        for precision, close in CLOSE.items():
            for level in losses:
                out = pathlib.Path(work, f"{level}-{precision}")
                result = train(program, level, out, precision)
                assert result.returncode == 0, f"{level}, {precision}: exit code {result.returncode}\n{result.stderr}"
                found = [event["loss"] for event in events(out) if event["event"] == "step"]
                errors = [abs(a - b) / abs(b) for a, b in zip(found, losses[level], strict=True)]
                print(f"{level}, {precision}: relative differences from fp64 " + " ".join(f"{e:.1e}" for e in errors))
                assert all(error <= close for error in errors), f"expected at most {close}"
                assert not [event for event in events(out) if event["event"] == "warning"], result.stderr
    first = losses["x86-64"]
    for level, found in losses.items():
        assert len(hashes[level]) == 1, f"{level}: found parameters {hashes[level]} after the same training"
        errors = [abs(a - b) / abs(b) for a, b in zip(found, first, strict=True)]
        print(f"{level}: losses {found[0]:.15f} … {found[-1]:.15f}, relative differences " + " ".join(f"{e:.1e}" for e in errors))
        assert all(error <= bound for error, bound in zip(errors, BOUND)), f"expected at most {BOUND}"


if __name__ == "__main__":
    main()
