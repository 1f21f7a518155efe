#!/usr/bin/env python3
"""Times PyTorch's operations on tiny tensors, on one CPU thread: one line of JSON per round.

    echo 1 1 1 | python3 bench/python/pytorch_overhead.py

Reads numbers of rounds from stdin. The cases and their tensors are those of bench/programs/overhead.cpp, with the layout of PyTorch.
Needs torch.
"""

import argparse
import json
import sys
import time

import torch
import torch.nn.functional as F


def ten_relus(x):
    for _ in range(10):
        x = torch.relu(x)
    return x


LABELS = torch.tensor([0, 1])
# name: shapes of the inputs, operation
CASES = {
    "relu": ([(4,)], torch.relu),
    "add": ([(4,), (4,)], torch.add),
    "mul": ([(4,), (4,)], torch.mul),
    "sum": ([(4,)], torch.sum),
    "reshape": ([(4,)], lambda x: x.reshape(2, 2)),
    "softmax": ([(2, 4)], lambda x: torch.softmax(x, 1)),
    "linear": ([(2, 4), (4, 4), (4,)], F.linear),
    "conv2d": ([(1, 4, 4, 4), (4, 4, 3, 3)], lambda x, filters: F.conv2d(x, filters, padding=1)),
    "max_pool2d": ([(1, 4, 4, 4)], lambda x: F.max_pool2d(x, 2)),
    "cross_entropy": ([(2, 4)], lambda x: F.cross_entropy(x, LABELS, reduction="sum")),
    "ten_relus": ([(4,)], ten_relus),
}


def nanoseconds(run, seconds):
    def seconds_of(calls):
        begin = time.perf_counter()
        for _ in range(calls):
            run()
        return time.perf_counter() - begin

    calls = 16
    while seconds_of(calls) < seconds / 2:
        calls *= 2
    return 1e9 * seconds_of(calls) / calls


def measure(name, seconds):
    shapes, op = CASES[name]
    inputs = [((torch.arange(torch.Size(shape).numel()) % 7).float() - 3).reshape(shape).requires_grad_()
              for shape in shapes]
    gradient = torch.ones_like(op(*inputs))

    def train():
        op(*inputs).backward(gradient)
        for each in inputs:
            each.grad = None

    with torch.no_grad():
        inference = nanoseconds(lambda: op(*inputs), seconds)
    return {"inference_ns": inference, "recorded_ns": nanoseconds(lambda: op(*inputs), seconds),
            "training_ns": nanoseconds(train, seconds)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.02, help="minimum duration of a round of one case")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print(json.dumps({"event": "warm", "torch": torch.__version__}), flush=True)
    for line in sys.stdin:
        for _ in line.split():
            print(json.dumps({"event": "round", "cases": {name: measure(name, arguments.seconds) for name in CASES}}),
                  flush=True)


if __name__ == "__main__":
    main()
