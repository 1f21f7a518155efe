"""Reads safetensors files as NumPy arrays."""

import json
import math
import os

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1", "U8": "u1",
         "BOOL": "?", "BF16": "<u2"}
MAX_HEADER = 100_000_000  # bytes, as in the format's reference implementation


def numpy():
    """Returns the module. Raises ImportError that says how to install it."""
    try:
        import numpy as module
    except ImportError as error:
        raise ImportError("weights, logits and arrays of pixels need NumPy: pip install numpy") from error
    return module


def load_weights(file):
    """Returns {name: array} of a safetensors file, such as model.safetensors of a checkpoint.

    The arrays are those of torchvision's names and layouts: filters are [O, I, kH, kW]. bf16 becomes f32. Raises
    ValueError for a file that is not valid, and OSError for one that cannot be read.
    """
    np = numpy()
    with open(file, "rb") as source:
        data = np.frombuffer(source.read(), np.uint8)

    def invalid(what):
        return ValueError(f"{os.fspath(file)}: {what}, expected a safetensors file")

    length = int(data[:8].view("<u8")[0]) if len(data) >= 8 else 0
    if not 2 <= length <= min(MAX_HEADER, len(data) - 8):
        raise invalid(f"a header of {length} bytes in a file of {len(data)} bytes")
    try:
        entries = json.loads(data[8 : 8 + length].tobytes())
        entries.pop("__metadata__", None)
        described = {name: (each["dtype"], [int(n) for n in each["shape"]], [int(n) for n in each["data_offsets"]])
                     for name, each in entries.items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise invalid(f"a header that is not valid ({error!r})") from error
    arrays, content = {}, data[8 + length :]
    for name, (dtype, shape, offsets) in described.items():
        if dtype not in TYPES:
            raise invalid(f"{name}: found dtype {dtype}, which is not one of {', '.join(TYPES)}")
        size = math.prod(shape) * np.dtype(TYPES[dtype]).itemsize
        if min(shape, default=0) < 0 or len(offsets) != 2 or not 0 <= offsets[0] <= offsets[1] <= len(content) \
                or offsets[1] - offsets[0] != size:
            raise invalid(f"{name}: found bytes {offsets} of {len(content)} for {dtype} {shape}")
        values = np.frombuffer(content[offsets[0] : offsets[1]].tobytes(), TYPES[dtype])
        if dtype == "BF16":  # the upper half of an f32
            values = (values.astype("<u4") << 16).view("<f4")
        arrays[name] = values.reshape(shape)
    return arrays
