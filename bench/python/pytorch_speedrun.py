#!/usr/bin/env python3
"""Trains a speedrun network by the speed recipe in PyTorch, and prints the result as one line of JSON.

    convoy-train --model speedrun-small --print-config >config.toml
    python3 bench/python/pytorch_speedrun.py --config config.toml --data data/cifar10 --seed 1

With --seeds N, trains with N successive seeds in this process and prints a line for each. With --compile MODE, network
and orthogonalization are compiled by torch.compile, as in the record's script (max-autotune). Reads the rates and all
other numbers from a configuration of convoy-train, so that both sides use the same ones. --data is a directory with
train/CLASS/* and test/CLASS/*. The first run decodes the images and stores them in --cache. The network computes in
--precision, as autocast does. On a GPU, the images are in its memory before the time begins, and a few steps choose
cuDNN's algorithms before the network is initialized, as in the record's script. Needs a Python interpreter with torch
and Pillow.
"""

import argparse
import json
import math
import os
import pathlib
import sys
import time
import tomllib

import torch
import torch.nn.functional as F
from torch import nn

# Widths of the groups, and whether they have a third convolution and a shortcut. Such a network also has other initial
# values, statistics and a fixed divisor of the logits.
PLANS = {"speedrun-small": ((32, 64, 64), False), "speedrun": ((64, 256, 256), False),
         "speedrun-96": ((128, 384, 512), True)}
ACTIVATIONS = {"gelu": F.gelu, "silu": F.silu}
WHITENED_IMAGES = 5000
WARMUP_STEPS = 5  # on a GPU, before the time begins
PRECISIONS = {"fp32": None, "bf16": torch.bfloat16, "fp16": torch.float16}
VIEWS = [(shift, mirror, 0.25 if shift == 0 else 0.125) for shift in (0, 1, -1) for mirror in (False, True)]


def read_images(directory, cache):
    """Returns (images [N, 3, H, W] of type u8, labels) of train and test."""
    stored = cache and pathlib.Path(cache)
    if stored and stored.exists():
        return torch.load(stored)
    from PIL import Image  # needed for the first run only
    import numpy
    sets = []
    for part in ("train", "test"):
        classes = sorted(path.name for path in (directory / part).iterdir() if path.is_dir())
        images, labels = [], []
        for label, name in enumerate(classes):
            for file in sorted((directory / part / name).iterdir()):
                images.append(torch.from_numpy(numpy.array(Image.open(file).convert("RGB"))))
                labels.append(label)
        sets.append((torch.stack(images).permute(0, 3, 1, 2).contiguous(), torch.tensor(labels)))
    if stored:
        torch.save(sets, stored)
    return sets


class Group(nn.Module):
    def __init__(self, channels, width, has_shortcut, activation):
        super().__init__()
        self.has_shortcut, self.activation = has_shortcut, activation
        for i in range(3 if has_shortcut else 2):
            self.add_module(f"conv{i + 1}", nn.Conv2d(width if i else channels, width, 3, padding=1, bias=False))
            norm = nn.BatchNorm2d(width, eps=1e-12, momentum=0.1 if has_shortcut else 0.4)
            norm.weight.requires_grad = False
            self.add_module(f"norm{i + 1}", norm)

    def forward(self, x):
        first = self.activation(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        x = self.activation(self.norm2(self.conv2(first)))
        return self.activation(self.norm3(self.conv3(x)) + first) if self.has_shortcut else x


class Network(nn.Module):
    def __init__(self, model, activation):
        super().__init__()
        widths, self.has_shortcuts = PLANS[model]
        self.activation = ACTIVATIONS[activation]
        self.whiten = nn.Conv2d(3, 24, 2)
        self.whiten.weight.requires_grad = False
        inputs = (24, *widths)
        groups = [Group(inputs[i], widths[i], self.has_shortcuts, self.activation) for i in range(3)]
        self.layers = nn.Sequential(*groups, nn.MaxPool2d(3), nn.Flatten())
        self.head = nn.Linear(widths[-1], 10, bias=False)

    @torch.no_grad()
    def initialize(self, images):
        """Draws all weights, as for a new network, and computes the first filters from images."""
        for layer in self.modules():
            if hasattr(layer, "reset_parameters"):
                layer.reset_parameters()
        self.whiten.weight.copy_(whitening_filters(images.float()))
        for layer in self.layers.modules():
            if isinstance(layer, nn.Conv2d):
                nn.init.dirac_(layer.weight[:layer.in_channels])
        if self.has_shortcuts:
            self.whiten.bias.zero_()
        else:
            self.head.weight /= self.head.weight.std()

    def forward(self, images):
        divisor = 9 if self.has_shortcuts else self.head.in_features
        return self.head(self.layers(self.activation(self.whiten(images)))) / divisor


def whitening_filters(images):
    """Returns filters [24, 3, 2, 2] that whiten the 2x2 patches of images [N, 3, H, W], and their negatives."""
    patches = F.unfold(images, 2).transpose(1, 2).reshape(-1, 12)
    values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches))
    filters = (vectors / (values + 5e-4).sqrt()).T.flip(0).reshape(12, 3, 2, 2)
    return torch.cat([filters, -filters])


def orthogonalized(matrix, iterations):
    """Returns nearly the nearest matrix with equal singular values, by Newton-Schulz iterations."""
    x = matrix.bfloat16() if matrix.is_cuda else matrix
    x = x / (x.norm() + 1e-7)
    tall = x.size(0) > x.size(1)
    x = x.T if tall else x
    for _ in range(iterations):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if tall else x


class Muon:
    """Momentum of filters that is orthogonalized; each filter is rescaled to the norm sqrt(rows) before its step."""

    def __init__(self, parameters, config, orthogonalize):
        self.parameters, self.config, self.orthogonalize = parameters, config, orthogonalize
        self.momenta = [torch.zeros_like(parameter) for parameter in parameters]

    @torch.no_grad()
    def step(self, share):
        """Makes a step with this share of the peak rate."""
        for parameter, momentum in zip(self.parameters, self.momenta):
            momentum.mul_(self.config["momentum"]).add_(parameter.grad)
            direction = parameter.grad + self.config["momentum"] * momentum
            parameter.mul_(len(parameter) ** 0.5 / parameter.norm())
            update = self.orthogonalize(direction.flatten(1), self.config["ns-steps"])
            parameter.sub_(update.view_as(parameter), alpha=self.config["lr"] * share)


def shifted(images, limit):
    """Returns images that are shifted by up to `limit` pixels on each axis, each by its own random numbers."""
    count, channels, height, width = images.shape
    padded = F.pad(images, (limit,) * 4, "reflect")
    down, right = torch.randint(0, 2 * limit + 1, (2, count, 1, 1, 1), device=images.device)
    rows = (down + torch.arange(height, device=images.device).view(1, 1, -1, 1))
    columns = (right + torch.arange(width, device=images.device).view(1, 1, 1, -1))
    rows = rows.expand(count, channels, height, padded.size(3))
    columns = columns.expand(count, channels, height, width)
    return padded.gather(2, rows).gather(3, columns)


def without_squares(images, size):
    """Returns images [N, C, H, W] with zeros in a square of `size` pixels, whose center is anywhere in the image."""
    if not size:
        return images
    count, _, height, width = images.shape
    top, left = (torch.randint(0, side, (count, 1), device=images.device) - size // 2 for side in (height, width))
    rows, columns = (torch.arange(side, device=images.device) for side in (height, width))
    in_rows, in_columns = (rows >= top) & (rows < top + size), (columns >= left) & (columns < left + size)
    return images.masked_fill((in_rows.unsqueeze(2) & in_columns.unsqueeze(1)).unsqueeze(1), 0)


def augmentation(config):
    """Returns the maximum shift and the side of the square of --augment."""
    words = dict(word.partition("=")[::2] for word in config["augment"].split(","))
    if not {"crop", "reflect", "alternating-flip"} <= set(words) <= {"crop", "reflect", "alternating-flip", "cutout"}:
        sys.exit(f"found augment = {config['augment']}, expected crop, reflect, alternating-flip, and cutout or not")
    return int(words["crop"] or 4), int(words.get("cutout", 0) or 8 * ("cutout" in words))


class Recipe:
    """What all trainings of a process share: configuration, network, arithmetic, and compiled functions."""

    def __init__(self, config, device, arithmetic, mode):
        self.config, self.arithmetic, self.compiles = config, arithmetic, mode != "no"
        self.shift, self.square = augmentation(config)
        self.network = Network(config["model"], config["activation"].replace("auto", "gelu"))
        self.network = self.network.to(device).to(memory_format=torch.channels_last)
        self.forward = torch.compile(self.network, mode=mode) if self.compiles else self.network
        self.orthogonalize = torch.compile(orthogonalized, dynamic=False) if self.compiles else orthogonalized

    def logits(self, images):
        if self.compiles:  # CUDA graphs may now overwrite the logits of the previous step
            torch.compiler.cudagraph_mark_step_begin()
        with self.arithmetic():
            return self.forward(images).float()


def evaluate(recipe, images, labels, views):
    """Returns the accuracy of the mean logits over some views of each image."""
    recipe.network.eval()
    correct = 0
    with torch.no_grad():
        for begin in range(0, len(images), 500):
            batch = images[begin:begin + 500]
            padded = F.pad(batch, (1,) * 4, "reflect")
            logits = 0
            for shift, mirror, weight in views:
                at = 1 - shift
                view = padded[:, :, at:at + batch.size(2), at:at + batch.size(3)]
                view = (view.flip(-1) if mirror else view).contiguous(memory_format=torch.channels_last)
                logits = logits + weight * recipe.logits(view)
            correct += (logits.argmax(1) == labels[begin:begin + 500]).sum().item()
    return correct / len(images)


def train(recipe, images, labels, max_steps=None, whiten_epochs=None):
    """Trains the network by the recipe, or for the first `max_steps` of it."""
    device, network, config = images.device, recipe.network, recipe.config
    network.initialize(images[:WHITENED_IMAGES])
    filters = [p for p in network.layers.parameters() if p.dim() == 4]
    biases = [p for p in network.layers.parameters() if p.dim() == 1 and p.requires_grad]
    decay = config["weight-decay"] * config["lr"]  # per step at the peak
    peaks = [config["bias-lr"], config["bias-lr"], config["sgd-lr"]]
    groups = [{"params": params, "lr": peak, "weight_decay": decay / peak}
              for params, peak in zip(([network.whiten.bias], biases, [network.head.weight]), peaks)]
    sgd = torch.optim.SGD(groups, momentum=config["sgd-momentum"], nesterov=True)
    muon = Muon(filters, config, recipe.orthogonalize)
    whiten_epochs = float(config["freeze"].removeprefix("whiten=")) if whiten_epochs is None else whiten_epochs
    size = config["batch-size"]
    per_epoch = math.ceil(len(images) / size)
    steps = config["epochs"] * per_epoch
    mirrored = torch.rand(len(images), device=device) < 0.5
    step = 0
    for epoch in range(config["epochs"]):
        network.train()
        order = torch.randperm(len(images), device=device)
        for first in range(0, len(images), size):
            if step == max_steps:
                return
            rows = order[first:first + size]
            batch = shifted(images[rows], recipe.shift)
            flip = (mirrored[rows] ^ bool(epoch % 2)).view(-1, 1, 1, 1)
            batch = without_squares(torch.where(flip, batch.flip(-1), batch), recipe.square)
            batch = batch.contiguous(memory_format=torch.channels_last)
            network.whiten.bias.requires_grad = step < whiten_epochs * per_epoch
            F.cross_entropy(recipe.logits(batch), labels[rows], label_smoothing=config["label-smoothing"],
                            reduction="sum").backward()
            share = 1 - step / steps
            of_whitening = max(0.0, 1 - step / (whiten_epochs * per_epoch)) if whiten_epochs else 0.0
            shares = [of_whitening, share, share]
            for group, peak, of_peak in zip(sgd.param_groups, peaks, shares):
                group["lr"] = peak * of_peak
            sgd.step()
            muon.step(share)
            network.zero_grad(set_to_none=True)
            step += 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=pathlib.Path, required=True, help="output of convoy-train --print-config")
    parser.add_argument("--data", type=pathlib.Path, required=True)
    parser.add_argument("--cache", help="file of the decoded images")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1, help="trainings in this process, with seeds from --seed on")
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--precision", default="fp32", choices=list(PRECISIONS))
    parser.add_argument("--compile", default="no", help="a mode of torch.compile, such as max-autotune")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    arguments = parser.parse_args()
    config = tomllib.loads(arguments.config.read_text())
    expected = {"optimizer": "muon", "schedule": "linear", "loss-reduction": "sum", "normalize-filters": True,
                "decay-biases": True}
    for name, value in expected.items():
        if config[name] != value:
            sys.exit(f"{arguments.config}: found {name} = {config[name]}, expected {value}")
    torch.manual_seed(arguments.seed)
    torch.set_num_threads(arguments.threads)
    dtype = PRECISIONS[arguments.precision]
    on_gpu = arguments.device == "cuda"

    def arithmetic():
        return torch.autocast(arguments.device, dtype or torch.bfloat16, enabled=dtype is not None)

    def seconds():
        if on_gpu:
            torch.cuda.synchronize()
        return time.perf_counter()

    sets = read_images(arguments.data, arguments.cache)
    (images, labels), (test, test_labels) = [[each.to(arguments.device) for each in both] for both in sets]
    images, test = images.float() / 255, test.float() / 255
    mean, std = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True)
    images, test = (images - mean) / std, (test - mean) / std
    if on_gpu:
        torch.backends.cudnn.benchmark = True
    recipe = Recipe(config, arguments.device, arithmetic, arguments.compile)
    if on_gpu or recipe.compiles:
        train(recipe, images, labels, WARMUP_STEPS)
        train(recipe, images, labels, WARMUP_STEPS, whiten_epochs=0)  # the steps after the bias is frozen
        evaluate(recipe, test, test_labels, VIEWS)

    for seed in range(arguments.seed, arguments.seed + arguments.seeds):
        torch.manual_seed(seed)
        begin = seconds()
        train(recipe, images, labels)
        train_seconds = seconds() - begin
        test_accuracy = evaluate(recipe, test, test_labels, [(0, False, 1)])
        begin = seconds()
        tta_accuracy = evaluate(recipe, test, test_labels, VIEWS)
        tta_seconds = seconds() - begin
        print(json.dumps({"test_accuracy": test_accuracy, "tta_accuracy": tta_accuracy, "train_seconds": train_seconds,
                          "tta_seconds": tta_seconds, "end": time.monotonic()}), flush=True)


if __name__ == "__main__":
    main()
