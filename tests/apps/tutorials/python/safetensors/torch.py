"""In place of safetensors.torch: shapes instead of tensors, and a file of the test instead of torchvision's weights."""
import json
import os
import shutil


def load_file(name):
    with open(name, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
    return {tensor: entry["shape"] for tensor, entry in header.items() if tensor != "__metadata__"}


def save_file(tensors, name):
    assert tensors == "the weights of torchvision", tensors
    shutil.copy(os.environ["TORCHVISION_WEIGHTS"], name)
