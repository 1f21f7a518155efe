"""Computes the tests' inputs and weights, with the same formula as tests/testing/support/reference.cpp.

Entry i of the stream `name` is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014) seeded with the FNV-1a hash of the
name. Its upper 24 bits give a value in [-1, 1) that float32 represents exactly. So only results need to be stored.
"""

import math

import numpy as np

MASK = (1 << 64) - 1


def fnv1a(name: str) -> int:
    state = 0xCBF29CE484222325
    for byte in name.encode():
        state = ((state ^ byte) * 0x100000001B3) & MASK
    return state


def bits(name: str, count: int) -> np.ndarray:
    """Returns the upper 24 bits of entries 0 to count - 1."""
    with np.errstate(over="ignore"):
        z = np.uint64(fnv1a(name)) + np.arange(1, count + 1, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return z >> np.uint64(40)


def values(name: str, shape, scale: float = 1.0, offset: float = 0.0) -> np.ndarray:
    """Returns offset + scale u, u in [-1, 1), rounded once to float32, in row-major order of PyTorch's shape."""
    u = bits(name, math.prod(shape)).astype(np.float64) * 2.0**-23 - 1.0
    return (offset + scale * u).astype(np.float32).reshape(shape)


def labels(name: str, count: int, classes: int) -> np.ndarray:
    return (bits(name, count) % np.uint64(classes)).astype(np.int64)


def model_values(name: str, shape) -> np.ndarray:
    """Returns the values of a parameter or buffer, scaled according to its PyTorch name and shape."""
    if name.endswith("running_var"):
        return values(name, shape, 0.5, 1.0)
    if name.endswith("weight") and len(shape) == 1:  # of a batch norm
        return values(name, shape, 0.25, 1.0)
    if len(shape) == 1:
        return values(name, shape, 0.25)
    return values(name, shape, math.sqrt(3.0 / math.prod(shape[1:])))  # variance 1 / fan_in
