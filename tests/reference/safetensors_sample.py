#!/usr/bin/env python3
"""Writes sample.safetensors with Python's safetensors: a small file with every element type that the engine reads.

Run it manually; safetensors_test.cpp contains the same values.
"""

import pathlib

import safetensors.torch
import torch

tensors = {
    "conv.weight": torch.arange(12, dtype=torch.float32).reshape(2, 3, 2, 1) / 4 - 1,
    "double": torch.tensor([1 / 3, -2e300], dtype=torch.float64),
    "half": torch.tensor([1.5, -65504.0, 2.0**-24], dtype=torch.float16),
    "brain": torch.tensor([3.140625, -1e38], dtype=torch.bfloat16),
    "index": torch.tensor([[-7, 2**31 - 1]], dtype=torch.int32),
    "bytes": torch.tensor([0, 127, 255], dtype=torch.uint8),
    "bn.num_batches_tracked": torch.tensor(1234, dtype=torch.int64),
    "empty": torch.zeros(0, 5),
}
safetensors.torch.save_file(tensors, pathlib.Path(__file__).parent / "sample.safetensors",
                            metadata={"format": "pt", "note": "ümlaut \"quoted\""})
