#!/usr/bin/env python3
"""Times epochs of PyTorch's loader on a directory of images: one line of JSON per request.

    echo 1 1 1 | python3 bench/python/pytorch_loader.py --data data/cifar10 --workers 2

Reads numbers of epochs from stdin, as pytorch_step.py does with steps. Uses torchvision's ImageFolder on train/, which
decodes in each epoch: with Pillow, or with torchvision's decoder and tensor transforms. Then applies a random crop
after padding, a flip, conversion to float, and normalization. The workers of the DataLoader persist between epochs.
Needs torch and torchvision.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch
import torchvision
from torchvision.transforms import v2

MEAN, STD = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
TICKS = os.sysconf("SC_CLK_TCK")


def transforms(arguments):
    """Returns the transforms from a decoded image to the input of the network."""
    of_pillow = arguments.decoder == "pillow"
    module = torchvision.transforms if of_pillow else v2  # the former is faster for Pillow images
    size = arguments.image_size
    resize = [module.Resize(size), module.CenterCrop(size)] if size else []
    augment = [module.RandomCrop(size or arguments.side, padding=arguments.crop), module.RandomHorizontalFlip()]
    floats = module.ToTensor() if of_pillow else v2.ToDtype(torch.float32, scale=True)
    return module.Compose([*resize, *augment, floats, module.Normalize(MEAN, STD)])


def decode(path):
    return torchvision.io.decode_image(path, mode="RGB")


def side_of(directory):
    """Returns the side of the first image, which is the crop size without resizing."""
    with torchvision.datasets.folder.default_loader(next(directory.glob("*/*"))) as image:
        return image.size[0]


def core_seconds(workers):
    """Returns user and system time of this process and of its running workers (/proc/PID/stat, proc(5))."""
    total = time.process_time()
    for worker in workers:
        fields = pathlib.Path(f"/proc/{worker.pid}/stat").read_text().rpartition(")")[2].split()
        total += (int(fields[11]) + int(fields[12])) / TICKS
    return total


def say(**figures):
    print(json.dumps(figures), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=pathlib.Path, required=True, help="folder with train/CLASS/*")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)), help="worker processes; 0: none")
    parser.add_argument("--image-size", type=int, default=0, help="image size (pixels per side); 0: original size")
    parser.add_argument("--crop", type=int, default=4, help="padding before the random crop (pixels)")
    parser.add_argument("--decoder", default="pillow", choices=["pillow", "torchvision"])
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    arguments.side = side_of(arguments.data / "train")
    loading = {"loader": decode} if arguments.decoder == "torchvision" else {}
    images = torchvision.datasets.ImageFolder(arguments.data / "train", transforms(arguments), **loading)
    loader = torch.utils.data.DataLoader(images, arguments.batch_size, shuffle=True, num_workers=arguments.workers,
                                         persistent_workers=arguments.workers > 0)
    batches = iter(loader)
    next(batches)  # now the workers have started and imported their modules
    say(event="warm", torch=torch.__version__, torchvision=torchvision.__version__, images=len(images))
    for _ in batches:
        pass
    for line in sys.stdin:
        for epochs in map(int, line.split()):
            workers = batches._workers if arguments.workers else []
            begin, begin_core = time.perf_counter(), core_seconds(workers)
            found = sum(len(labels) for _ in range(epochs) for _, labels in loader)
            say(event="epochs",
                images=found,
                seconds=time.perf_counter() - begin,
                core_seconds=core_seconds(workers) - begin_core)


if __name__ == "__main__":
    main()
