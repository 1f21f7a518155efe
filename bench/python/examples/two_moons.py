"""The two moons of apps/examples in PyTorch.

python3 bench/python/examples/two_moons.py [optimizer steps, default 400]
"""

import sys

import torch
import torch.nn.functional as F
from torch import nn


def make_moons(n, seed):
    """Returns points [n, 2] on two interleaved half circles, with noise, and their labels [n]."""
    random = torch.Generator().manual_seed(seed)
    labels = torch.arange(n) % 2
    angles, side = torch.pi * torch.arange(n) / n, 1 - 2 * labels
    points = torch.stack([side * angles.cos() + labels, side * angles.sin() + 0.5 * labels], 1)
    return points + 0.1 * torch.randn(n, 2, generator=random), labels


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 400
    torch.manual_seed(1)
    (points, labels), (test_points, test_labels) = make_moons(512, 1), make_moons(512, 2)
    net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 2))
    optimizer = torch.optim.Adam(net.parameters(), lr=0.01)
    for step in range(1, steps + 1):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(points), labels)
        loss.backward()
        optimizer.step()
        if step == 1 or step % 100 == 0:
            print(f"step {step}  loss {loss.item():.4f}")
    with torch.no_grad():
        accuracy = (net(test_points).argmax(1) == test_labels).float().mean().item()
    print(f"test accuracy {100 * accuracy:.1f}%")


if __name__ == "__main__":
    main()
