#!/usr/bin/env python3
"""Stores reference results of PyTorch for the tests: *.safetensors except sample.safetensors, and *names.json.

Run it manually, with a Python that has torch, numpy and safetensors, and for some files torchvision and timm; builds and
tests do not need them. Without arguments it writes all files; otherwise those of the given names, such as `samples`.
The metadata of the files contains the versions that wrote them. Inputs and weights are not stored: see formula.py.
"""

import importlib
import json
import pathlib
import sys
from importlib import metadata

import safetensors.numpy
import torch

DIRECTORY = pathlib.Path(__file__).parent
MODULES = ["ops", "attention", "color_jitter", "indexing", "losses", "muon", "normalization", "conv2d_transpose",
           "conv2d_groups", "grad_cam", "models", "speedrun", "recipe", "samples", "schedules", "torchvision_models",
           "vision_transformer", "weight_average", "windows"]  # which compute the files of their names; that of models is networks


def versions() -> dict:
    installed = {distribution.metadata["Name"] for distribution in metadata.distributions()}
    return {name: metadata.version(name) for name in ("torch", "torchvision") if name in installed}


def save(name: str, tensors: dict) -> None:
    # Bytes stay bytes; other types become f64, which holds their values.
    stored = {key: tensor if tensor.dtype == torch.uint8 else tensor.double() for key, tensor in tensors.items()}
    arrays = {key: tensor.detach().contiguous().numpy() for key, tensor in stored.items()}
    safetensors.numpy.save_file(arrays, DIRECTORY / name, metadata=versions())
    print(f"{name}: {len(arrays)} tensors, {(DIRECTORY / name).stat().st_size} bytes")


def save_names(name: str, listings: dict) -> None:
    lines = [f'"{model}": {json.dumps(listing, separators=(",", ":"))}' for model, listing in listings.items()]
    (DIRECTORY / name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def main() -> None:
    torch.set_num_threads(1)  # a fixed order of sums
    for name in sys.argv[1:] or MODULES:
        save(f"{name}.safetensors", importlib.import_module("networks" if name == "models" else name).compute())
    if len(sys.argv) == 1:
        import networks

        save_names("names.json", networks.names())
        save_names("timm_names.json", networks.timm_names())


if __name__ == "__main__":
    main()
