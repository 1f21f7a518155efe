#!/usr/bin/env python3
"""One rank of a PyTorch DDP training on the CPU by gloo, for compare.py faults and waits: trains LeNet on random images until it
is stopped. Reads RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT. Prints "step N" after each 10 steps.

    RANK=0 WORLD_SIZE=1 MASTER_ADDR=localhost MASTER_PORT=29500 python3 bench/python/pytorch_ddp.py
"""

import argparse
import datetime
import itertools

import torch
import torch.distributed as dist
from torch import nn


def lenet():
    return nn.Sequential(nn.Conv2d(3, 6, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(6, 16, 5), nn.ReLU(),
                         nn.MaxPool2d(2), nn.Flatten(), nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(),
                         nn.Linear(84, 10))


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--timeout", type=float, help="of collectives (seconds); default: PyTorch's, 30 minutes")
    arguments = flags.parse_args()
    torch.set_num_threads(1)
    timeout = {} if arguments.timeout is None else {"timeout": datetime.timedelta(seconds=arguments.timeout)}
    dist.init_process_group("gloo", **timeout)
    model = nn.parallel.DistributedDataParallel(lenet())
    optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
    images, labels = torch.randn(32, 3, 32, 32), torch.randint(10, (32,))
    for step in itertools.count(1):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(images), labels).backward()
        optimizer.step()
        if step % 10 == 0:
            print(f"step {step}", flush=True)


if __name__ == "__main__":
    main()
