#!/usr/bin/env python3
"""Merges the shards of an optimizer's state, as trainings with --zero write them, into one file.

    python3 scripts/merge_optimizer.py OUT/checkpoints/step_000391 optimizer.safetensors

Writes what a training without --zero would have written: whole tensors under the names of their parameters,
filters as [O, I, kH, kW]. Any reader of safetensors loads the result. In a program of one's own, load() returns
the tensors. Needs Python alone.
"""

import argparse
import json
import pathlib
import struct
import sys

SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I32": 4, "U8": 1}


def read(path):
    """Returns the header of a safetensors file, and its data."""
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), memoryview(data)[8 + length :]


def to_checkpoint_order(data, shape, size):
    """Returns a filter [O, kH, kW, I] as [O, I, kH, kW]."""
    outputs, height, width, inputs = shape
    area = height * width
    result = bytearray(len(data))
    step = inputs * size
    for o in range(outputs):
        for i in range(inputs):
            for k in range(area):
                source = o * area * step + k * step + i * size
                target = ((o * inputs + i) * area + k) * size
                result[target : target + size] = data[source : source + size]
    return result, [outputs, inputs, height, width]


def load(checkpoint):
    """Returns {name: (dtype, shape, bytes)} of a checkpoint directory, in the layout of checkpoints."""
    return merge(checkpoint)[0]


def merge(checkpoint):
    """Returns load(checkpoint), and the metadata of the file: the numbers of steps of single parameters, if any."""
    shards = sorted(pathlib.Path(checkpoint).glob("optimizer-*-of-*.safetensors"))
    if not shards:
        raise SystemExit(f"{checkpoint}: no file optimizer-*-of-*.safetensors, expected a checkpoint with shards")
    expected = int(shards[0].stem.split("-of-")[1])
    if len(shards) != expected:
        raise SystemExit(f"{checkpoint}: {len(shards)} shards, expected {expected}")
    wholes, own_steps = {}, {}
    for shard in shards:
        header, data = read(shard)
        metadata = header.pop("__metadata__")
        own_steps |= json.loads(metadata.get("own_steps", "{}"))
        for name, entry in header.items():
            place = json.loads(metadata[name])
            size = SIZES[entry["dtype"]]
            numel = 1
            for length in place["shape"]:
                numel *= length
            whole = wholes.setdefault(name, (entry["dtype"], place["shape"], place["kind"], bytearray(numel * size)))
            begin, end = entry["data_offsets"]
            first = place["begin"] * size
            whole[3][first : first + end - begin] = data[begin:end]
    result = {}
    for name, (dtype, shape, kind, data) in wholes.items():
        if kind == "filter":
            data, shape = to_checkpoint_order(data, shape, SIZES[dtype])
        result[name] = (dtype, shape, bytes(data))
    return result, {"own_steps": json.dumps(own_steps)} if own_steps else {}


def write(path, tensors, metadata=()):
    """Writes a safetensors file."""
    header, offset = {"__metadata__": {"format": "pt"} | dict(metadata)}, 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("checkpoint", help="directory of the checkpoint")
    flags.add_argument("file", help="safetensors file to write")
    arguments = flags.parse_args()
    tensors, metadata = merge(arguments.checkpoint)
    write(arguments.file, tensors, metadata)
    print(f"{arguments.file}: {len(tensors)} tensors", file=sys.stderr)


if __name__ == "__main__":
    main()
