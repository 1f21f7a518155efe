#!/usr/bin/env python3
"""Draws the curves of a run as SVG: the training loss at each logged step and the test accuracy.

    python3 scripts/plot_log.py runs/speedrun-small-cifar10 docs/images/speedrun-small-cifar10.svg

Reads RUN/log.jsonl, where RUN is the first argument. Needs Python only.
"""

import json
import os
import sys

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 720, 300, 56, 56, 34, 40
LOSS, ACCURACY, INK, GRID = "#2a78b5", "#c2571a", "#333333", "#dddddd"


def read_events(run):
    with open(os.path.join(run, "log.jsonl"), encoding="utf-8") as log:
        return [json.loads(line) for line in log]


def text(x, y, words, anchor="middle", color=INK):
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{color}">{words}</text>'


def draw(events):
    steps = [event for event in events if event["event"] == "step"]
    evaluations = [event for event in events if event["event"] == "eval"]
    start = next(event for event in events if event["event"] == "start")
    result = next(event for event in reversed(events) if event["event"] == "result")
    last = max(event["step"] for event in steps + evaluations)
    top_loss = max(event["loss"] for event in steps)

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
        parts.append(text(LEFT - 8, y(share) + 4, f"{top_loss * share:.1f}", "end", LOSS))
        parts.append(text(WIDTH - RIGHT + 8, y(share) + 4, f"{100 * share:.0f}%", "start", ACCURACY))
    for fifth in range(6):
        parts.append(text(x(last * fifth / 5), HEIGHT - BOTTOM + 18, f"{last * fifth / 5:.0f}"))
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
    parts.append(text(WIDTH / 2, 18, f"{config['model']} on {config['dataset']}: {100 * result['test_accuracy']:.2f}% "
                                     f"after {result['train_seconds']:.0f} s"))
    return "\n".join(parts + ["</svg>", ""])


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    os.makedirs(os.path.dirname(sys.argv[2]) or ".", exist_ok=True)
    with open(sys.argv[2], "w", encoding="utf-8") as picture:
        picture.write(draw(read_events(sys.argv[1])))


if __name__ == "__main__":
    main()
