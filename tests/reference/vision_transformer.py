"""Computes the losses of short trainings of the vision transformer of apps/examples."""

import torch
import torch.nn.functional as F
from torch import nn

import networks


class VisionTransformer(nn.Module):
    def __init__(self, size=32, classes=10, patch=4, width=128, heads=4, depth=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.positions = nn.Parameter(torch.zeros((size // patch) ** 2, width))
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


def compute() -> dict:
    out = {}
    for dtype, name in ((torch.float32, "f32"), (torch.float64, "f64")):
        model = networks.fill(VisionTransformer(size=16, width=32, depth=3)).to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05)
        losses = []
        for step in range(networks.STEPS):
            images, labels = networks.batch(step, 16, 16, dtype)
            optimizer.zero_grad()
            loss = F.cross_entropy(model(images), labels)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        out[f"losses_{name}"] = torch.tensor(losses, dtype=torch.float64)
    return out
