#!/usr/bin/env python3
"""Stores what PyTorch computes, for the tests to compare with: ops.safetensors, models.safetensors, names.json.

Run by hand, in any Python with torch, torchvision, numpy and safetensors; no build and no test needs them. The
versions that wrote the files stand in their metadata. Inputs and weights are never stored: see formula.py.
"""

import json
import pathlib

import safetensors.numpy
import torch
import torchvision

import ops
import networks

FOLDER = pathlib.Path(__file__).parent


def save(name: str, tensors: dict) -> None:
    arrays = {key: tensor.detach().double().contiguous().numpy() for key, tensor in tensors.items()}
    versions = {"torch": torch.__version__, "torchvision": torchvision.__version__}
    safetensors.numpy.save_file(arrays, FOLDER / name, metadata=versions)
    print(f"{name}: {len(arrays)} tensors, {(FOLDER / name).stat().st_size} bytes")


def main() -> None:
    torch.set_num_threads(1)  # sums in one order
    save("ops.safetensors", ops.compute())
    save("models.safetensors", networks.compute())
    lines = [f'"{name}": {json.dumps(listing, separators=(",", ":"))}' for name, listing in networks.names().items()]
    (FOLDER / "names.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
