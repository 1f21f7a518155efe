"""The autoencoder of apps/examples in PyTorch. On random images, it prints steps per second.

python3 bench/python/examples/autoencoder.py DIRECTORY|random [optimizer steps, default 1000]; needs torchvision

DIRECTORY has the images of CIFAR-10 in train/CLASS/ and test/CLASS/. Writes autoencoder.png.
"""

import math
import sys
import time
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader
from torchvision import datasets, transforms, utils

BATCH_SIZE = 128


def make_autoencoder():
    """Returns an encoder of [N, 3, 32, 32] to [N, 8, 4, 4] and its decoder."""
    return nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1), nn.GELU(), nn.Conv2d(32, 64, 4, 2, 1), nn.GELU(), nn.Conv2d(64, 8, 4, 2, 1),
        nn.ConvTranspose2d(8, 64, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.GELU(),
        nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Sigmoid(),
    )  # fmt: skip


def batches_of(directory, split):
    """Yields batches of images, epoch after epoch for the training set."""
    if directory == "random":
        images = torch.rand(BATCH_SIZE, 3, 32, 32)
        while True:
            yield images
    images = datasets.ImageFolder(Path(directory) / split, transforms.ToTensor())
    while True:
        yield from (batch for batch, _ in DataLoader(images, BATCH_SIZE, shuffle=split == "train", num_workers=2))
        if split == "test":
            return


def test(model, directory):
    total = count = 0
    with torch.no_grad():
        for images in batches_of(directory, "test"):
            output = model(images)
            if count == 0:
                utils.save_image(torch.cat([images[:8], output[:8]]), "autoencoder.png")
            total, count = total + F.mse_loss(output, images).item() * len(images), count + len(images)
    print(f"test: mean squared error {total / count:.5f}, {-10 * math.log10(total / count):.1f} dB")


def main() -> None:
    directory, steps = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    torch.set_num_threads(2)
    torch.manual_seed(1)
    model = make_autoencoder()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, steps, 0.1, cycle_momentum=False)
    for step, images in zip(range(1, steps + 1), batches_of(directory, "train")):
        if step == 11:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.mse_loss(model(images), images)
        loss.backward()
        optimizer.step()
        schedule.step()
        if step == 1 or step % 100 == 0:
            print(f"step {step}/{steps}  mean squared error {loss.item():.5f}")
    print(f"{(steps - 10) / (time.perf_counter() - begin):.2f} steps/s")
    if directory != "random":
        test(model, directory)


if __name__ == "__main__":
    main()
