"""Compares the convolution of tests/cuda_emulator/convolution with the CPU, and times it next to cuDNN's."""

import re
import statistics

from gpu_validation.environment import need_device
from gpu_validation.work import Failed, NotHere, last_line

RUNS = 3
LAYER = re.compile(r"^ *(\d+x\d+ +\d+ channels +\w+) +hopper +([\d.]+) us +\d+ TFLOP/s +cudnn +([\d.]+) us", re.MULTILINE)


def times_in(text):
    """Returns the microseconds by layer and direction: of the convolution, and of cuDNN's."""
    return {" ".join(layer.split()): (float(own), float(cudnn)) for layer, own, cudnn in LAYER.findall(text)}


def checked(work, command):
    done = work.run(command)
    if done.returncode != 0:
        raise Failed(f"{command[0].name} ended with code {done.returncode}: {last_line(done.stderr or done.stdout)}")
    return done.stdout


def run(work):
    need_device(work)
    test, bench = (work.programs / f"hopper_convolution_{name}" for name in ("test", "bench"))
    for program in (test, bench):
        if not program.is_file():
            raise NotHere(f"no {program.name} among the programs")
    if not work.quick:  # CTest runs it on emulated GPUs
        checked(work, [test])
    runs = [times_in(checked(work, [bench, *(["--batch", "1", "--direction", "forward"] if work.quick else [])]))
            for _ in range(1 if work.quick else RUNS)]
    if not runs[0]:
        raise Failed("hopper_convolution_bench has printed no times")
    for layer in runs[0]:
        own, cudnn = zip(*(times[layer] for times in runs))
        work.found[layer] = {"us": statistics.median(own), "cudnn us": statistics.median(cudnn),
                             "ratio": statistics.median(b / a for a, b in zip(own, cudnn))}
