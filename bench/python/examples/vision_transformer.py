"""The vision transformer of apps/examples in PyTorch, on random images: steps per second.

python3 bench/python/examples/vision_transformer.py [steps, default 30] [threads, default 2]
"""

import sys
import time

import torch
import torch.nn.functional as F
from torch import nn


class VisionTransformer(nn.Module):
    def __init__(self, size=32, classes=10, patch=4, width=128, heads=4, depth=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(0.02 * torch.randn((size // patch) ** 2, width))
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, heads, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(depth)
        )
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, classes)

    def forward(self, images):
        x = self.patches(images).flatten(2).transpose(1, 2) + self.positions
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x).mean(1))


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 30
    torch.set_num_threads(int(sys.argv[2]) if len(sys.argv) > 2 else 2)
    torch.manual_seed(1)
    model = VisionTransformer()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
    images, labels = torch.randn(128, 3, 32, 32), torch.randint(10, (128,))
    for step in range(-5, steps):
        if step == 0:
            begin = time.perf_counter()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
    seconds = time.perf_counter() - begin
    print(f"{steps / seconds:.2f} steps/s, {128 * steps / seconds:.0f} images/s, loss {loss.item():.4f}")


if __name__ == "__main__":
    main()
