"""The equivalents of Convoy's --precision in PyTorch."""

import contextlib

import torch

PRECISIONS = ("fp64", "fp32", "tf32", "bf16", "fp16")


def set_arithmetic(precision):
    """Enables tf32 only for the precision tf32. By default, PyTorch lets convolutions round to tf32."""
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision == "tf32"


def master_dtype(precision):
    return torch.float64 if precision == "fp64" else torch.float32


def autocast(device, precision):
    """Returns the autocast context for half precision with single-precision parameters; else a null context."""
    if precision not in ("bf16", "fp16"):
        return contextlib.nullcontext()
    return torch.autocast(device, torch.bfloat16 if precision == "bf16" else torch.float16)
