#!/usr/bin/env python3
"""Draws the curves of a run: the training loss at each logged step and the test accuracy.

    python3 scripts/plot_log.py runs/speedrun-small-cifar10 docs/images/speedrun-small-cifar10.svg

Reads RUN/log.jsonl, where RUN is the first argument. Writes SVG; also PNG or PDF, by the suffix of the file, if
rsvg-convert is installed (librsvg2-bin). Needs Python only.
"""

import argparse
import json
import os

from pictures import check_suffix, fail, tick_label, tick_step, ticks, write_picture

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 56, 56, 34, 40
LOSS, ACCURACY, INK, GRID = "#2a78b5", "#c2571a", "#333333", "#dddddd"


def read_events(run):
    """Reads the events of a run. A line that is being written, the last one, is left out."""
    path = os.path.join(run, "log.jsonl")
    try:
        with open(path, encoding="utf-8", errors="replace") as log:
            lines = log.read().split("\n")[:-1]
    except OSError as error:
        fail(f"{path}: {error.strerror}; expected the directory of a run")
    events = []
    for number, line in enumerate(lines, 1):
        try:
            events.append(json.loads(line))
            events[-1]["event"]
        except (ValueError, TypeError, KeyError):
            fail(f"{path}:{number}: no event of a log, expected a JSON object with the key 'event'")
    if not any(event["event"] == "step" for event in events) or events[0]["event"] != "start":
        fail(f"{path}: no logged step; wait for step --log-every of the training")
    return events


def text(x, y, words, anchor="middle", color=INK):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{words}</text>'


def draw(events):
    steps = [event for event in events if event["event"] == "step"]
    evaluations = [event for event in events if event["event"] == "eval"]
    start = next(event for event in events if event["event"] == "start")
    result = next((event for event in reversed(events) if event["event"] == "result"), None)
    last = max(event["step"] for event in steps + evaluations)
    loss_step = tick_step(max(max(event["loss"] for event in steps), 1e-6), 5)  # one grid line for each 20 %
    top_loss = 5 * loss_step

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(share):
        return TOP + (HEIGHT - TOP - BOTTOM) * (1 - share)

    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
             f'height="{HEIGHT}" font-family="sans-serif" font-size="12">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for tenth in range(0, 11, 2):
        share = tenth / 10
        parts.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(share):.1f}" y2="{y(share):.1f}" '
                     f'stroke="{GRID}"/>')
        parts.append(text(LEFT - 8, y(share) + 4, tick_label(top_loss * share, loss_step), "end", LOSS))
        parts.append(text(WIDTH - RIGHT + 8, y(share) + 4, f"{100 * share:.0f}%", "start", ACCURACY))
    for step, label in ticks(last, 6):
        if step == int(step):
            parts.append(text(x(step), HEIGHT - BOTTOM + 18, label))
    parts.append(text(WIDTH / 2, HEIGHT - 6, "step"))

    line = " ".join(f"{x(event['step']):.1f},{y(event['loss'] / top_loss):.1f}" for event in steps)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{LOSS}" stroke-width="1.2"/>')
    line = " ".join(f"{x(event['step']):.1f},{y(event['accuracy']):.1f}" for event in evaluations)
    parts.append(f'<polyline points="{line}" fill="none" stroke="{ACCURACY}" stroke-width="2"/>')
    for event in evaluations:
        parts.append(f'<circle cx="{x(event["step"]):.1f}" cy="{y(event["accuracy"]):.1f}" r="3.5" fill="{ACCURACY}"/>')

    config = start["config"]
    parts.append(text(LEFT, 18, "training loss", "start", LOSS))
    parts.append(text(WIDTH - RIGHT, 18, "test accuracy", "end", ACCURACY))
    end = f"{100 * result['test_accuracy']:.2f}% after {result['train_seconds']:.0f} s" if result else "not complete"
    parts.append(text(WIDTH / 2, 18, f"{config['model']} on {config['dataset']}: {end}"))
    return "\n".join(parts + ["</svg>", ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", help="directory of a run")
    parser.add_argument("picture", help="file to write: .svg, .png or .pdf")
    arguments = parser.parse_args()
    check_suffix(arguments.picture)
    write_picture(arguments.picture, draw(read_events(arguments.run)))


if __name__ == "__main__":
    main()
