"""Generated training images: ten classes of noise around a colour, identical on every machine.

Needs only Python, and writes files that convoy-train reads.
"""

import random
import struct

CLASSES = 10


def _pixels(source, label, size):
    """Returns RGB rows from the top: noise of 64 levels above a brightness per channel that depends on the class."""
    pixels = bytearray(source.randbytes(3 * size * size))
    for channel, stride in enumerate((1, 3, 7)):
        base = label * stride % 4 * 48
        pixels[channel::3] = pixels[channel::3].translate(bytes(base + value // 4 for value in range(256)))
    return bytes(pixels)


def _bmp(pixels, size):
    """Returns a BMP file with 24 bits per pixel: BGR rows from the bottom, padded to a multiple of 4 bytes."""
    line = 3 * size
    padding = bytes(-line % 4)
    rows = []
    for y in reversed(range(size)):
        row = bytearray(pixels[y * line:(y + 1) * line])
        row[0::3], row[2::3] = row[2::3], row[0::3]
        rows.append(bytes(row) + padding)
    data = b"".join(rows)
    header = struct.pack("<2sIII", b"BM", 54 + len(data), 0, 54)
    return header + struct.pack("<IiiHHIIiiII", 40, size, size, 1, 24, 0, len(data), 0, 0, 0, 0) + data


def write_dataset(directory, size, train, test=CLASSES, seed=1):
    """Writes train/CLASS/*.bmp and test/CLASS/*.bmp for `--dataset folder`. Returns the training (label, RGB) pairs."""
    source = random.Random(seed)
    kept = []
    for split, count in (("train", train), ("test", test)):
        for i in range(count):
            label = i % CLASSES
            pixels = _pixels(source, label, size)
            place = directory / split / f"class{label}"
            place.mkdir(parents=True, exist_ok=True)
            (place / f"{i}.bmp").write_bytes(_bmp(pixels, size))
            if split == "train":
                kept.append((label, pixels))
    return kept
