"""Images to train on where no data set is at hand: ten classes of noise around a colour, the same on every machine.

Needs nothing but Python, and writes files that convoy-train reads.
"""

import random
import struct

CLASSES = 10


def _pixels(source, label, size):
    """RGB rows from the top: noise of 64 levels above a brightness of each channel that tells the class."""
    pixels = bytearray(source.randbytes(3 * size * size))
    for channel, stride in enumerate((1, 3, 7)):
        base = label * stride % 4 * 48
        pixels[channel::3] = pixels[channel::3].translate(bytes(base + value // 4 for value in range(256)))
    return bytes(pixels)


def _bmp(pixels, size):
    """A BMP file of 24 bits a pixel: rows from the bottom, blue first, each filled up to a multiple of 4 bytes."""
    line = 3 * size
    filling = bytes(-line % 4)
    rows = []
    for y in reversed(range(size)):
        row = bytearray(pixels[y * line:(y + 1) * line])
        row[0::3], row[2::3] = row[2::3], row[0::3]
        rows.append(bytes(row) + filling)
    data = b"".join(rows)
    header = struct.pack("<2sIII", b"BM", 54 + len(data), 0, 54)
    return header + struct.pack("<IiiHHIIiiII", 40, size, size, 1, 24, 0, len(data), 0, 0, 0, 0) + data


def write_folder(folder, size, train, test=CLASSES, seed=1):
    """train/CLASS/*.bmp and test/CLASS/*.bmp for `--dataset folder`; returns the training set as (label, RGB bytes)."""
    source = random.Random(seed)
    kept = []
    for split, count in (("train", train), ("test", test)):
        for i in range(count):
            label = i % CLASSES
            pixels = _pixels(source, label, size)
            place = folder / split / f"class{label}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i}.bmp").write_bytes(_bmp(pixels, size))
            if split == "train":
                kept.append((label, pixels))
    return kept
