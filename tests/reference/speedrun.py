"""Computes one training step and the inference of the speedrun networks, and whitening filters of random images."""

import torch
import torch.nn.functional as F
from torch import nn

import formula
import networks

PIXELS = 32
WHOLE = ("whiten.bias", "layers.1.norm1.bias", "layers.3.norm2.bias", "head.weight")  # gradients that are stored


class Group(nn.Module):
    def __init__(self, inputs: int, width: int, depth: int, momentum: float, activation):
        super().__init__()
        self.depth, self.activation = depth, activation
        for i in range(1, depth + 1):
            self.add_module(f"conv{i}", nn.Conv2d(inputs if i == 1 else width, width, 3, padding=1, bias=False))
            norm = nn.BatchNorm2d(width, eps=1e-12, momentum=momentum)
            norm.weight.requires_grad_(False)
            self.add_module(f"norm{i}", norm)

    def forward(self, x):
        x = first = self.activation(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        x = self.norm2(self.conv2(x))
        if self.depth == 2:
            return self.activation(x)
        return self.activation(self.norm3(self.conv3(self.activation(x))) + first)


class Speedrun(nn.Module):
    def __init__(self, widths: tuple, depth: int, momentum: float, divisor: float, activation=nn.GELU()):
        super().__init__()
        self.divisor = divisor
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad_(False)
        inputs = (24, *widths)
        groups = [Group(inputs[i], widths[i], depth, momentum, activation) for i in range(3)]
        self.layers = nn.Sequential(activation, *groups, nn.MaxPool2d(3))
        self.head = nn.Linear(widths[-1], 10, bias=False)

    def forward(self, x):
        return self.head(self.layers(self.whiten(x)).flatten(1)) / self.divisor


def step(out: dict, name: str, model: nn.Module, count: int) -> None:
    networks.fill(model).double()
    images, labels = networks.batch(0, count, PIXELS, torch.float64)
    logits = model(images)
    loss = F.cross_entropy(logits, labels, label_smoothing=0.2, reduction="sum")
    loss.backward()
    gradients = {key: p.grad for key, p in model.named_parameters() if p.requires_grad}
    out[f"{name}/logits"], out[f"{name}/loss"] = logits, loss.reshape(1)
    for key, gradient in gradients.items():
        out[f"{name}/norm/{key}"] = gradient.norm().reshape(1)
    for key in WHOLE:
        out[f"{name}/gradient/{key}"] = gradients[key]
    for key in ("running_mean", "running_var"):
        out[f"{name}/{key}"] = getattr(model.layers[3].norm2, key)
    with torch.no_grad():
        out[f"{name}/inference"] = model.eval()(images)


def whitening(out: dict) -> None:
    """Stores the sum of w w^T over the filters w, which depends neither on their order nor on their signs."""
    images = torch.from_numpy(formula.values("images0", (16, 3, PIXELS, PIXELS))).double()
    images = images + 0.5 * images.roll(1, dims=3)  # adjacent pixels depend on each other
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)  # the order [3, 2, 2]
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = vectors.T / torch.sqrt(values + 5e-4).unsqueeze(1)
    filters = filters.reshape(-1, 3, 2, 2).permute(0, 2, 3, 1).reshape(12, 12)
    out["whitening"] = 2 * filters.T @ filters


def compute() -> dict:
    out = {}
    step(out, "speedrun-small", Speedrun((32, 64, 64), 2, 0.4, 64), 8)
    step(out, "speedrun-96", Speedrun((128, 384, 512), 3, 0.1, 9), 2)
    step(out, "speedrun-small/silu", Speedrun((32, 64, 64), 2, 0.4, 64, nn.SiLU()), 8)
    step(out, "speedrun-96/silu", Speedrun((128, 384, 512), 3, 0.1, 9, nn.SiLU()), 2)
    whitening(out)
    return out
