"""What the scripts that draw pictures share: the ticks of axes, and files of several formats."""

import math
import os
import shutil
import subprocess
import sys

CONVERTER = "rsvg-convert"


def tick_step(length, count):
    """Returns the smallest of 1, 2, 2.5 and 5 times a power of ten of which `count` reach at least `length` > 0."""
    power = 10.0 ** math.floor(math.log10(length / count))
    return next(step for factor in (1, 2, 2.5, 5, 10)
                if (step := factor * power) * count >= length * (1 - 1e-9))


def tick_label(value, step):
    """Returns a tick's value with the decimals that a multiple of `step` needs."""
    return f"{value:.{next(digits for digits in range(20) if abs(round(step, digits) - step) < 1e-9 * step)}f}"


def ticks(length, count):
    """Returns the (value, label) of each tick of an axis from 0 to `length`: at most `count` after that of 0."""
    step = tick_step(length, count)
    return [(i * step, tick_label(i * step, step)) for i in range(math.floor(length / step * (1 + 1e-9)) + 1)]


def fail(message):
    """Ends the program with one line on stderr and exit code 1."""
    sys.exit(f"{os.path.basename(sys.argv[0])}: {message}")


def check_suffix(path):
    """Ends the program unless write_picture() can write a file of this name."""
    suffix = os.path.splitext(path)[1].lower()
    if suffix not in (".svg", ".png", ".pdf"):
        fail(f"{path}: found the suffix '{suffix}', expected .svg, .png or .pdf")
    if suffix != ".svg" and shutil.which(CONVERTER) is None:
        fail(f"{path}: {suffix} needs {CONVERTER}; install librsvg2-bin, or write an .svg file")


def write_picture(path, svg):
    """Writes an SVG picture to a file, in the format of its suffix: SVG, PNG (twice as large) or PDF."""
    suffix = os.path.splitext(path)[1].lower()
    try:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        if suffix == ".svg":
            with open(path, "w", encoding="utf-8") as picture:
                picture.write(svg)
            return
        zoom = ["--zoom", "2"] if suffix == ".png" else []
        subprocess.run([CONVERTER, "--format", suffix[1:], *zoom, "--output", path], input=svg.encode(), check=True)
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except subprocess.CalledProcessError as error:
        fail(f"{path}: {CONVERTER} failed with exit code {error.returncode}")
