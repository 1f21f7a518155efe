#!/usr/bin/env python3
"""Checks that Convoy and torchvision can read each other's weights and compute the same logits from them.

tests/apps/common/python_readers_test.cpp runs it. By hand, with a Python that has torch, torchvision, numpy, pillow and safetensors:

    scripts/check_torchvision.py [--bin build/release/bin] [--model resnet18] [--stem cifar|imagenet] [--checkpoint DIR]

1. Loads a checkpoint of convoy-train (trained for three steps here, or --checkpoint) into torchvision's model. The
   logits of a few images must equal those of convoy-predict.
2. Loads torchvision's random weights with convoy-train --init-from. One step at learning rate 0 must give a checkpoint
   with the same parameters, and with running statistics that batch norm's rule computes from the given ones. Then
   compares logits as in 1.
Logits may differ by at most 1e-4 of the largest.
"""

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torchvision
from PIL import Image
from safetensors.torch import load_file, save_file
from torch import nn

BN_MOMENTUM = 0.1
TOLERANCE = 1e-4
IMAGES = 8
CLASSES = 10


class Mismatch(Exception):
    pass


def run(*command) -> None:
    words = [str(word) for word in command]
    result = subprocess.run(words, capture_output=True, text=True)
    if result.returncode != 0:
        raise Mismatch(f"{' '.join(words)}: exit code {result.returncode}\n{result.stdout}{result.stderr}")


def torchvision_model(name: str, stem: str, classes: int, channels: int) -> nn.Module:
    model = getattr(torchvision.models, name)(num_classes=classes)
    kernel, stride = (3, 1) if stem == "cifar" else (7, 2)
    if stem == "cifar":
        model.maxpool = nn.Identity()
    if stem == "cifar" or channels != 3:
        model.conv1 = nn.Conv2d(channels, 64, kernel, stride, kernel // 2, bias=False)
    return model.eval()


def load(model: nn.Module, tensors: dict) -> nn.Module:
    """Loads all tensors of a checkpoint into the model. Only the counters of batches may be missing."""
    missing, unexpected = model.load_state_dict(tensors, strict=False)
    missing = [name for name in missing if not name.endswith("num_batches_tracked")]
    if missing or unexpected:
        raise Mismatch(f"names differ: missing {missing}, unexpected {unexpected}")
    return model


def input_spec(checkpoint: pathlib.Path) -> dict:
    """Returns the image size, class names and normalization that the checkpoint was trained with."""
    return json.loads(json.loads((checkpoint / "manifest.json").read_text())["extra"]["input"])


def write_images(directory: pathlib.Path, shape: list, count: int, seed: int) -> list:
    """Writes smooth random images of the input size, so that neither program has to resize them."""
    height, width, channels = shape
    directory.mkdir(parents=True)
    random = np.random.default_rng(seed)
    paths = []
    for i in range(count):
        coarse = torch.from_numpy(random.random((1, channels, 4, 4), dtype=np.float32))
        smooth = nn.functional.interpolate(coarse, (height, width), mode="bilinear")[0]
        pixels = (smooth * 255).byte().permute(1, 2, 0).numpy()
        paths.append(directory / f"{i}.png")
        Image.fromarray(pixels.squeeze(2) if channels == 1 else pixels).save(paths[-1])
    return paths


def write_data_set(directory: pathlib.Path, size: int) -> None:
    for label in range(CLASSES):
        write_images(directory / "train" / f"class{label}", [size, size, 3], 4, seed=label)
        write_images(directory / "test" / f"class{label}", [size, size, 3], 1, seed=100 + label)


def compare_logits(name: str, model: nn.Module, checkpoint: pathlib.Path, bin: pathlib.Path, work: pathlib.Path) -> None:
    spec = input_spec(checkpoint)
    height, width, channels = spec["image"]
    directory = work / "images"
    shutil.rmtree(directory, ignore_errors=True)
    paths = write_images(directory, spec["image"], IMAGES, seed=1000)
    run(bin / "convoy-predict", "--checkpoint", checkpoint, "--logits", work / "logits.npy", *paths)
    convoy_logits = np.load(work / "logits.npy")

    pixels = np.stack([np.asarray(Image.open(path)).reshape(height, width, channels) for path in paths])
    images = (pixels.astype(np.float32) / 255 - np.float32(spec["mean"])) * np.float32(spec["inverse_std"])
    with torch.no_grad():
        torchvision_logits = model(torch.from_numpy(images).permute(0, 3, 1, 2)).numpy()
    if convoy_logits.shape != torchvision_logits.shape:
        raise Mismatch(f"{name}: logits {convoy_logits.shape}, torchvision's {torchvision_logits.shape}")
    error = np.abs(convoy_logits - torchvision_logits).max() / np.abs(torchvision_logits).max()
    if not error <= TOLERANCE:
        raise Mismatch(f"{name}: logits differ by {error:.2e} of the largest, expected at most {TOLERANCE:.0e}")
    print(f"{name}: logits of {len(paths)} images agree within {error:.1e}")


def newest(run_directory: pathlib.Path) -> pathlib.Path:
    return run_directory / "checkpoints" / (run_directory / "checkpoints" / "LATEST").read_text().strip()


def train(arguments, out: pathlib.Path, *flags) -> pathlib.Path:
    data = out.parent / "data"
    if not data.exists():
        write_data_set(data, 32 if arguments.stem == "cifar" else 64)
    common = ["--model", arguments.model, "--stem", arguments.stem, "--dataset", "folder", "--data", data]
    run(arguments.bin / "convoy-train", *common, "--batch-size", 16, "--eval-every", 0, "--out", out, *flags)
    return newest(out)


def check_to_torchvision(arguments, work: pathlib.Path) -> None:
    checkpoint = arguments.checkpoint or train(arguments, work / "trained", "--max-steps", 3)
    spec = input_spec(checkpoint)
    model = torchvision_model(arguments.model, arguments.stem, len(spec["classes"]), spec["image"][2])
    load(model, load_file(checkpoint / "model.safetensors"))
    compare_logits("Convoy to torchvision", model, checkpoint, arguments.bin, work)


def with_random_statistics(model: nn.Module, seed: int) -> dict:
    generator = torch.Generator().manual_seed(seed)
    state = model.state_dict()
    for name, tensor in state.items():
        if name.endswith("running_mean"):
            tensor.uniform_(-0.25, 0.25, generator=generator)
        elif name.endswith("running_var"):
            tensor.uniform_(0.5, 1.5, generator=generator)
    return {name: tensor.clone() for name, tensor in state.items()}


def check_from_torchvision(arguments, work: pathlib.Path) -> None:
    torch.manual_seed(1)
    model = torchvision_model(arguments.model, arguments.stem, CLASSES, channels=3)
    given, saved = [], []
    for seed in (1, 2):  # the same parameters, other running statistics
        given.append(with_random_statistics(model, seed))
        path = work / f"torchvision{seed}.safetensors"
        save_file(given[-1], path)
        flags = ["--init-from", path, "--max-steps", 1, "--lr", 0, "--warmup", 0, "--weight-decay", 0]
        checkpoint = train(arguments, work / f"from_torchvision{seed}", *flags)
        saved.append(load_file(checkpoint / "model.safetensors"))

    for name, tensor in saved[0].items():
        if "running_" not in name:
            if not torch.equal(tensor, given[0][name]):
                raise Mismatch(f"{name}: changed by --init-from and a step at rate 0")
            continue
        # new = 0.9 given + 0.1 batch, and both runs used the same batch
        moved, expected = saved[0][name] - saved[1][name], (1 - BN_MOMENTUM) * (given[0][name] - given[1][name])
        if not torch.allclose(moved, expected, rtol=0, atol=1e-6 * max(1.0, tensor.abs().max().item())):
            raise Mismatch(f"{name}: was not read, or does not follow batch norm's rule")
    print(f"torchvision to Convoy: {len(saved[0])} tensors are equal")
    compare_logits("torchvision to Convoy", load(model, saved[1]), checkpoint, arguments.bin, work)


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks that Convoy and torchvision can read each other's weights.")
    parser.add_argument("--bin", type=pathlib.Path, default="build/release/bin",
                        help="directory of the programs (default: %(default)s)")
    parser.add_argument("--model", choices=["resnet18", "resnet34", "resnet50"], default="resnet18")
    parser.add_argument("--stem", choices=["cifar", "imagenet"], default="cifar")
    parser.add_argument("--checkpoint", type=pathlib.Path, help="checkpoint directory; default: train one for 3 steps")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as work:
        try:
            check_to_torchvision(arguments, pathlib.Path(work))
            check_from_torchvision(arguments, pathlib.Path(work))
        except Mismatch as mismatch:
            print(f"check_torchvision: {mismatch}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
