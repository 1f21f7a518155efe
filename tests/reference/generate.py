#!/usr/bin/env python3
"""Stores reference results of PyTorch for the tests: *.safetensors except sample.safetensors, and *names.json.

Run it manually, with a Python that has torch, torchvision, timm, numpy and safetensors; builds and tests do not need
them.
The metadata of the files contains the versions that wrote them. Inputs and weights are not stored: see formula.py.
"""

import json
import pathlib

import safetensors.numpy
import torch
import torchvision

import attention
import color_jitter
import indexing
import layerwise
import losses
import muon
import conv2d_groups
import conv2d_transpose
import ops
import networks
import rand_augment
import normalization
import recipe
import schedules
import speedrun
import vision_transformer
import weight_average

DIRECTORY = pathlib.Path(__file__).parent


def save(name: str, tensors: dict) -> None:
    # Bytes stay bytes; other types become f64, which holds their values.
    stored = {key: tensor if tensor.dtype == torch.uint8 else tensor.double() for key, tensor in tensors.items()}
    arrays = {key: tensor.detach().contiguous().numpy() for key, tensor in stored.items()}
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    safetensors.numpy.save_file(arrays, DIRECTORY / name, metadata=versions)
    print(f"{name}: {len(arrays)} tensors, {(DIRECTORY / name).stat().st_size} bytes")


def save_names(name: str, listings: dict) -> None:
    lines = [f'"{model}": {json.dumps(listing, separators=(",", ":"))}' for model, listing in listings.items()]
    (DIRECTORY / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    torch.set_num_threads(1)  # a fixed order of sums
    save("ops.safetensors", ops.compute())
    save("attention.safetensors", attention.compute())
    save("color_jitter.safetensors", color_jitter.compute())
    save("indexing.safetensors", indexing.compute())
    save("layerwise.safetensors", layerwise.compute())
    save("losses.safetensors", losses.compute())
    save("muon.safetensors", muon.compute())
    save("normalization.safetensors", normalization.compute())
    save("conv2d_transpose.safetensors", conv2d_transpose.compute())
    save("conv2d_groups.safetensors", conv2d_groups.compute())
    save("models.safetensors", networks.compute())
    save("speedrun.safetensors", speedrun.compute())
    save("recipe.safetensors", recipe.compute())
    save("rand_augment.safetensors", rand_augment.compute())
    save("schedules.safetensors", schedules.compute())
    save("vision_transformer.safetensors", vision_transformer.compute())
    save("weight_average.safetensors", weight_average.compute())
    save_names("names.json", networks.names())
    save_names("timm_names.json", networks.timm_names())


if __name__ == "__main__":
    main()
