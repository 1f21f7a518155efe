"""Predictions by convoy-predict, of image files and of arrays of pixels."""

import json
import os
import pathlib
import struct
import tempfile
import zlib

from convoy.programs import run_program
from convoy.weights import numpy

IMAGES_PER_CALL = 1024  # their paths fit the longest command line that Linux allows


def predict(checkpoint, images, *, top=5, **flags):
    """Returns the most probable classes of each image: a list of dicts with class, label and probability.

    checkpoint: a checkpoint directory or a run directory (its best checkpoint). images: a list, or a uint8 array
    [N, H, W, C], of images: paths, bytes of image files, PIL images, or uint8 arrays [H, W] or [H, W, 1 or 3]. For a
    single image, returns its list alone. flags: those of convoy-predict, such as batch_size=32. Raises ProgramError if
    the program fails, and TypeError or ValueError for other objects and shapes.
    """
    def call(files):
        records = json.loads(run_program("convoy-predict", *files, checkpoint=checkpoint, top=top, json="-", **flags))
        return [record["predictions"] for record in records]

    return compute(images, call)


def logits(checkpoint, images, **flags):
    """Returns the logits of images as an array: [N, classes], or [classes] for a single one. Arguments and errors are
    those of predict()."""
    np = numpy()

    def call(files):
        with tempfile.TemporaryDirectory() as directory:
            file = os.path.join(directory, "logits.npy")
            run_program("convoy-predict", *files, checkpoint=checkpoint, logits=file, **flags)
            return list(np.load(file))

    found = compute(images, call)
    return np.stack(found) if isinstance(found, list) else found


def compute(images, call):
    """Returns what `call` returns for the files of `images`, in their order; for a single image its own result.

    Images that are not files are written to a directory, which is removed afterwards: convoy-predict reads one image
    from standard input, or any number of files.
    """
    single = is_single(images)
    every, results = [images] if single else list(images), []
    for begin in range(0, len(every), IMAGES_PER_CALL):
        with tempfile.TemporaryDirectory() as directory:
            batch = every[begin : begin + IMAGES_PER_CALL]
            results += call([to_file(image, pathlib.Path(directory, f"{begin + i}.png")) for i, image in enumerate(batch)])
    return results[0] if single else results


def is_single(images):
    """Returns whether this is one image: a path, bytes, a PIL image, or an array with two or three dimensions."""
    return (isinstance(images, (str, bytes, os.PathLike)) or hasattr(images, "convert") or
            len(getattr(images, "shape", ())) in (2, 3))


def to_file(image, file):
    """Returns the path of an image: its own, or that of `file`, which is written."""
    if isinstance(image, (str, os.PathLike)):
        if os.path.isdir(image):
            raise IsADirectoryError(f"{os.fspath(image)}: found a directory, expected an image; list its files")
        return os.path.join(".", image) if os.fspath(image).startswith("-") else os.fspath(image)
    file.write_bytes(image if isinstance(image, bytes) else to_png(image))
    return str(file)


def to_png(image):
    """Returns the bytes of a PNG file with these pixels."""
    np = numpy()
    pixels = np.asarray(image.convert("RGB") if hasattr(image, "convert") else image)
    if pixels.dtype != np.uint8:
        raise TypeError(f"pixels: found {pixels.dtype}, expected uint8 (0 to 255)")
    channels = pixels.shape[2] if pixels.ndim == 3 else 1
    if pixels.ndim not in (2, 3) or channels not in (1, 3) or pixels.size == 0:
        raise ValueError(f"pixels: found the shape {list(pixels.shape)}, expected [H, W], [H, W, 1] or [H, W, 3]")

    def chunk(name, data):
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    height, width = pixels.shape[:2]
    header = struct.pack(">2I5B", width, height, 8, 2 if channels == 3 else 0, 0, 0, 0)
    rows = np.pad(pixels.reshape(height, -1), ((0, 0), (1, 0)))  # each row begins with its filter: 0 is none
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows.tobytes(), 1)) +
            chunk(b"IEND", b""))
