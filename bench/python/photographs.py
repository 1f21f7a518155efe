#!/usr/bin/env python3
"""Makes class directories of JPEG files that are as large and as rich as photographs of 500 pixels.

    python3 bench/python/photographs.py data/photographs --count 50000

An image has a long side of --size pixels and the proportions 4:3 or 3:2, upright or across. Its pixels are a smooth
gradient and details at all scales: crops of fields whose spectrum falls as 1/f, as that of photographs does. A file has
about 100 KB, as those of ImageNet. The same arguments give the same pixels on every machine; the bytes depend on the
version of Pillow. Needs NumPy and Pillow.
"""

import argparse
import concurrent.futures
import functools
import os
import pathlib
import sys

try:
    import numpy
    from PIL import Image
except ModuleNotFoundError as problem:
    sys.exit(f"photographs.py: {problem}; it needs NumPy and Pillow: pip install numpy pillow")

from comparisons.harness import at_least  # noqa: E402

CLASSES = 10
FIELD = 1024  # pixels per side
TEST_EVERY = 5  # every fifth image is a test image


@functools.cache
def fields(seed):
    """Returns four fields [FIELD, FIELD] with the spectrum 1/f, mean 0 and standard deviation 1."""
    source = numpy.random.default_rng(seed)
    rows, columns = numpy.fft.fftfreq(FIELD)[:, None], numpy.fft.rfftfreq(FIELD)[None, :]
    frequency = numpy.maximum(numpy.hypot(rows, columns), 1 / FIELD)
    found = []
    for _ in range(4):
        field = numpy.fft.irfft2(numpy.fft.rfft2(source.standard_normal((FIELD, FIELD))) / frequency)
        found.append(((field - field.mean()) / field.std()).astype(numpy.float32))
    return found


def pixels(seed, index, size):
    """Returns image `index` as u8 [height, width, 3]."""
    source = numpy.random.default_rng((seed, index))
    height, width = size * 3 // 4 if index % 2 else size * 2 // 3, size
    if source.random() < 0.3:
        height, width = width, height

    def crop():
        y, x = source.integers(0, FIELD - size, 2)
        part = fields(seed)[source.integers(4)][y:y + height, x:x + width]
        return part[::source.choice([-1, 1]), ::source.choice([-1, 1])]

    light, color = crop(), crop()
    down, across = numpy.linspace(-1, 1, height)[:, None], numpy.linspace(-1, 1, width)[None, :]
    image = numpy.empty((height, width, 3), numpy.float32)
    for channel in range(3):
        base, slope, slant, tint = source.uniform([80, -40, -40, -12], [170, 40, 40, 12])
        image[:, :, channel] = base + slope * down + slant * across + 40 * light + tint * color
    return numpy.clip(image, 0, 255).astype(numpy.uint8)


def write(arguments, index):
    split = "test" if index % TEST_EVERY == 0 else "train"
    place = arguments.directory / split / f"class{index // TEST_EVERY % CLASSES}"
    image = Image.fromarray(pixels(arguments.seed, index, arguments.size))
    image.save(place / f"{index:06d}.jpg", quality=arguments.quality)


def write_range(arguments, first, step):
    for index in range(first, arguments.count, step):
        write(arguments, index)


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("directory", type=pathlib.Path)
    flags.add_argument("--count", type=at_least(5), default=50000, help="images, of which a fifth are for testing")
    flags.add_argument("--size", type=int, default=500, help="long side (pixels), at most %d" % (FIELD - 1))
    flags.add_argument("--quality", type=at_least(1), default=90, help="of JPEG")
    flags.add_argument("--seed", type=at_least(0), default=1)
    flags.add_argument("--workers", type=at_least(1), default=len(os.sched_getaffinity(0)), help="default: number of cores")
    arguments = flags.parse_args()
    if arguments.quality > 100:
        flags.error(f"--quality: found {arguments.quality}, expected at most 100")
    if not 4 <= arguments.size < FIELD:
        flags.error(f"--size: found {arguments.size}, expected 4 to {FIELD - 1}")
    for split in ("train", "test"):
        for label in range(CLASSES):
            (arguments.directory / split / f"class{label}").mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ProcessPoolExecutor(arguments.workers) as pool:
        parts = [pool.submit(write_range, arguments, first, arguments.workers) for first in range(arguments.workers)]
        for part in parts:
            part.result()


if __name__ == "__main__":
    main()
