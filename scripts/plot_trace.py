#!/usr/bin/env python3
"""Draws one training step of a trace: what each rank computes, and when its gradient buckets are reduced.

    convoy-train … --trace trace.json
    python3 scripts/plot_trace.py trace.json docs/images/overlap.svg [--step 8]

Writes SVG; also PNG or PDF, by the suffix of the file, if rsvg-convert is installed (librsvg2-bin). Needs Python
only. convoy-report shows a step of a run's trace as well; this script draws any step of a trace without a browser.
"""

import argparse
import html
import json
import math
import os
import shutil
import subprocess
import sys

CONVERTER = "rsvg-convert"
WIDTH, LEFT, RIGHT, TOP, ROW, GAP, BOTTOM = 860, 96, 36, 34, 24, 16, 40
COLORS = {"data wait": "#999999", "forward": "#2a78b5", "backward": "#5a9e4b", "wait for gradients": "#eeeeee",
          "optimizer": "#8a62a8"}
BUCKET, INK, GRID = "#c2571a", "#333333", "#dddddd"


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


def read_trace(path):
    try:
        with open(path, encoding="utf-8") as trace:
            return json.load(trace)["traceEvents"]
    except OSError as error:
        fail(f"{path}: {error.strerror}")
    except (ValueError, TypeError, KeyError):
        fail(f"{path}: no trace, expected the file of convoy-train --trace")


def step_of(events, step):
    """Returns the spans of each rank in this step (from 1), up to the end of its optimizer."""
    spans = [event for event in events if event["ph"] == "X"]
    ranks = sorted({event["pid"] for event in spans})
    spans_of_step = {}
    for rank in ranks:
        own = sorted((event for event in spans if event["pid"] == rank), key=lambda event: event["ts"])
        ends = [event["ts"] + event["dur"] for event in own if event["name"] == "optimizer"]
        if len(ends) < step:
            fail(f"rank {rank} has {len(ends)} steps, expected {step} or more")
        begin, end = ([0.0] + ends)[step - 1], ends[step - 1]
        chosen = [event for event in own if event["name"] in COLORS or event["name"].startswith("bucket")]
        spans_of_step[rank] = [event for event in chosen if begin <= event["ts"] + event["dur"] / 2 <= end]
    return spans_of_step


def box(x, y, width, height, color, words):
    label = html.escape(words)
    parts = [f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.8):.1f}" height="{height}" fill="{color}">'
             f"<title>{label}</title></rect>"]
    if width > 7 * len(words):
        ink = INK if color == COLORS["wait for gradients"] else "white"
        parts.append(f'<text x="{x + width / 2:.1f}" y="{y + height / 2 + 4:.1f}" text-anchor="middle" fill="{ink}">'
                     f"{label}</text>")
    return "".join(parts)


def draw(spans_of_step):
    everything = [event for spans in spans_of_step.values() for event in spans]
    begin = min(event["ts"] for event in everything)
    length = max(event["ts"] + event["dur"] for event in everything) - begin
    height = TOP + len(spans_of_step) * (2 * ROW + GAP) + BOTTOM

    def x(time):
        return LEFT + (WIDTH - LEFT - RIGHT) * (time - begin) / length

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
             f'height="{height}" font-family="sans-serif" font-size="11">',
             f'<rect width="{WIDTH}" height="{height}" fill="white"/>']
    for milliseconds, label in ticks(length / 1e3, 6):
        place = x(begin + 1e3 * milliseconds)
        parts.append(f'<line x1="{place:.1f}" x2="{place:.1f}" y1="{TOP - 6}" y2="{height - BOTTOM}" stroke="{GRID}"/>')
        parts.append(f'<text x="{place:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle" fill="{INK}">'
                     f"{label} ms</text>")
    for row, (rank, spans) in enumerate(sorted(spans_of_step.items())):
        top = TOP + row * (2 * ROW + GAP)
        for words, y in ((f"rank {rank}", top), ("gradients", top + ROW)):
            parts.append(f'<text x="{LEFT - 8}" y="{y + ROW / 2 + 3:.1f}" text-anchor="end" fill="{INK}">{words}</text>')
        for span in spans:
            is_bucket = span["name"].startswith("bucket")
            parts.append(box(x(span["ts"]), top + (ROW if is_bucket else 0) + 1, x(span["ts"] + span["dur"]) - x(span["ts"]),
                             ROW - 2, BUCKET if is_bucket else COLORS[span["name"]], span["name"]))
    parts.append(f'<text x="{WIDTH / 2}" y="18" text-anchor="middle" fill="{INK}">one step on {len(spans_of_step)} '
                 f'{"rank" if len(spans_of_step) == 1 else "ranks"}</text>')
    return "\n".join(parts + ["</svg>"]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("trace")
    parser.add_argument("picture", help="file to write: .svg, .png or .pdf")
    parser.add_argument("--step", type=int, default=4, help="number of the step in the trace, from 1")
    arguments = parser.parse_args()
    check_suffix(arguments.picture)
    spans = step_of(read_trace(arguments.trace), arguments.step)
    if not any(spans.values()):
        fail(f"{arguments.trace}: no spans of a training step, expected the file of convoy-train --trace")
    write_picture(arguments.picture, draw(spans))


if __name__ == "__main__":
    main()
