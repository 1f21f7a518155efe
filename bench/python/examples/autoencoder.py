"""The autoencoder of apps/examples in PyTorch, on random images: steps per second.

python3 bench/python/examples/autoencoder.py [steps, default 60] [threads, default 2]
"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(3, 32, 4, 2, 1), nn.GELU(), nn.Conv2d(32, 64, 4, 2, 1), nn.GELU(), nn.Conv2d(64, 8, 4, 2, 1),
        nn.ConvTranspose2d(8, 64, 4, 2, 1), nn.GELU(), nn.ConvTranspose2d(64, 32, 4, 2, 1), nn.GELU(),
        nn.ConvTranspose2d(32, 3, 4, 2, 1), nn.Sigmoid(),
    )  # fmt: skip
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    images = torch.rand(128, 3, 32, 32)
    for step in range(-5, steps):
        if step == 0:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.mse_loss(model(images), images)
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - begin
    print(f"{steps / seconds:.2f} steps/s, {128 * steps / seconds:.0f} images/s, loss {loss.item():.5f}")


if __name__ == "__main__":
    main()
