#!/usr/bin/env python3
"""Training steps a second, Convoy beside PyTorch, on the same cores, in alternating runs.

    python3 bench/compare_step.py --convoy build/release/bin/convoy-train --model resnet18 --batch-size 128

Runs with any Python that has torch (and torchvision for the ResNets' definition of the network). Both sides train the
CIFAR form of the network (3x3 stem, no max-pool) with Nesterov SGD on data in memory: Convoy through convoy-train on
the generated `shapes` set, loader included; PyTorch on one fixed batch, which leaves its loader out. The first steps of
each run warm up and are not counted; the figure is the median step. PyTorch is timed in both memory formats.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

WARMUP = 3


def convoy_step_ms(arguments):
    with tempfile.TemporaryDirectory() as out:
        command = [arguments.convoy, "--model", arguments.model, "--dataset", "shapes", "--batch-size",
                   str(arguments.batch_size), "--max-steps", str(WARMUP + arguments.steps), "--threads",
                   str(arguments.threads), "--log-every", "1", "--eval-every", "0", "--out", out]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        with open(os.path.join(out, "log.jsonl"), encoding="utf-8") as log:
            steps = [event["step_ms"] for event in map(json.loads, log) if event["event"] == "step"]
    return statistics.median(steps[WARMUP:])


def pytorch_network(name):
    import torch
    import torchvision

    if name == "lenet":
        nn = torch.nn
        return nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                             nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84),
                             nn.ReLU(), nn.Linear(84, 10))
    network = getattr(torchvision.models, name)(num_classes=10)
    network.conv1 = torch.nn.Conv2d(3, 64, 3, padding=1, bias=False)
    network.maxpool = torch.nn.Identity()
    return network


def pytorch_step_ms(arguments, memory_format):
    import torch

    torch.manual_seed(1)
    torch.set_num_threads(arguments.threads)
    layout = getattr(torch, memory_format)
    network = pytorch_network(arguments.model).to(memory_format=layout)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01, momentum=0.9, nesterov=True, weight_decay=5e-4)
    images = torch.randn(arguments.batch_size, 3, 32, 32).to(memory_format=layout)
    labels = torch.randint(0, 10, (arguments.batch_size,))
    times = []
    for _ in range(WARMUP + arguments.steps):
        begin = time.perf_counter()
        loss = torch.nn.functional.cross_entropy(network(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times[WARMUP:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convoy", default="build/release/bin/convoy-train")
    parser.add_argument("--model", default="resnet18", choices=["lenet", "resnet18", "resnet34", "resnet50"])
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--steps", type=int, default=5, help="timed steps in each run")
    parser.add_argument("--rounds", type=int, default=5, help="alternating runs of each side")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--json", help="write the figures to this file too")
    parser.add_argument("--pytorch-only", choices=["contiguous_format", "channels_last"], help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.pytorch_only:
        print(pytorch_step_ms(arguments, arguments.pytorch_only))
        return

    import torch

    sides = {"convoy": [], "pytorch contiguous_format": [], "pytorch channels_last": []}
    for _ in range(arguments.rounds):
        sides["convoy"].append(convoy_step_ms(arguments))
        for memory_format in ("contiguous_format", "channels_last"):
            # A process of its own, so that neither side meets the other's threads or memory.
            command = [sys.executable, __file__, "--pytorch-only", memory_format, "--model", arguments.model,
                       "--batch-size", str(arguments.batch_size), "--steps", str(arguments.steps), "--threads",
                       str(arguments.threads)]
            printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            sides["pytorch " + memory_format].append(float(printed))

    print(f"{arguments.model}, batch {arguments.batch_size}, {arguments.threads} threads, fp32, "
          f"PyTorch {torch.__version__}, median of {arguments.rounds} runs (lowest to highest)")
    figures = {}
    for side, times in sides.items():
        rates = sorted(arguments.batch_size / time_ms * 1e3 for time_ms in times)
        figures[side] = {"images_per_second": statistics.median(rates), "lowest": rates[0], "highest": rates[-1]}
        print(f"  {side:28s} {statistics.median(rates):8.1f} images/s ({rates[0]:.1f} to {rates[-1]:.1f})")
    best = max(value["images_per_second"] for side, value in figures.items() if side != "convoy")
    ratio = figures["convoy"]["images_per_second"] / best
    print(f"  convoy / the faster PyTorch  {ratio:8.2f}")
    if arguments.json:
        with open(arguments.json, "w", encoding="utf-8") as file:
            json.dump({"model": arguments.model, "batch_size": arguments.batch_size, "threads": arguments.threads,
                       "torch": torch.__version__, "sides": figures, "ratio": ratio}, file, indent=2)
            file.write("\n")


if __name__ == "__main__":
    main()
