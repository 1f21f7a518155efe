#!/usr/bin/env python3
"""Measures why a training on several ranks is worse: batch norm over few samples, a learning rate divided by a loss
scale, or images that look larger in training than in the test.

    python3 scripts/batch_norm_experiment.py --data DIR --out runs/batch-norm [--seeds 3] [--datasets cifar10]

DIR contains cifar10/ and flowers/. Trains a ResNet in every combination of

    normalization  1 rank; N ranks with their own statistics, where rank 0's are evaluated; N ranks whose running
                   statistics are averaged (--bn-buffers mean); N ranks with common statistics (--sync-bn)
    rate           as meant; or divided by 1,024, which happens if an optimizer divides gradients by a loss scale
                   although the loss was not multiplied by it
    view           the same as in the test, shifted by up to 4 pixels; or boxes of the image resized to the full image
                   (resized-crop), which makes objects look larger than in the test

with one global batch size, and writes OUT/results.json and OUT/table.md. A combination that is in OUT is not trained
again, so a stopped run continues. Ranks are processes of this machine.

Needs Python only.
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time

NORMS = {"one": ("1 rank", []), "local": ("{n} ranks, own statistics", ["--bn-buffers", "local"]),
         "mean": ("{n} ranks, averaged statistics", ["--bn-buffers", "mean"]),
         "sync": ("{n} ranks, common statistics", ["--sync-bn"])}
RATES = {"meant": ("rate as meant", 1), "divided": ("rate / 1024", 1024)}
VIEWS = {"same": ("same view", "crop=4,flip"), "boxes": ("trained on boxes", "resized-crop={area},flip")}
# Flowers are photographs of some 500 pixels; small ones train as fast as CIFAR-10.
DATASETS = {"cifar10": {"title": "CIFAR-10", "kind": "cifar10", "folder": "cifar10", "size": 0, "epochs": 1},
            "flowers": {"title": "flowers", "kind": "folder", "folder": "flowers", "size": 48, "epochs": 4}}
DIVERGED = 6  # convoy-train's exit code if the training diverges


def fail(words):
    sys.exit(f"batch_norm_experiment.py: {words}")


def combinations(datasets, seeds):
    return [(dataset, norm, rate, view, seed) for dataset, view, rate, norm, seed in
            itertools.product(datasets, VIEWS, RATES, NORMS, range(1, seeds + 1))]


def key_of(combination):
    return "/".join(str(part) for part in combination)


def settings_of(options):
    return {"model": options.model, "ranks": options.ranks, "batch_size": options.batch_size, "lr": options.lr,
            "min_area": options.min_area, "max_steps": options.max_steps, "epochs": options.epochs,
            "image_size": options.image_size}


def load(path, settings):
    """Returns the results of earlier calls; exits with an error if their settings differ."""
    if not path.exists():
        return {"settings": settings, "cells": {}}
    results = json.loads(path.read_text(encoding="utf-8"))
    for name, value in settings.items():
        if results["settings"].get(name) != value:
            fail(f"{path}: was made with {name} {results['settings'].get(name)}, found {value}; choose another --out")
    return results


def store(path, text):
    """Writes the file atomically: after a crash it has either the old or the new text."""
    temporary = path.with_suffix(".new")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def command_of(options, combination, ranks, out):
    dataset, norm, rate, view, seed = combination
    what = DATASETS[dataset]
    size = what["size"] if options.image_size is None else options.image_size
    words = [str(options.train), "--model", options.model, "--dataset", what["kind"],
             "--data", str(options.data / what["folder"]), "--image-size", str(size),
             "--batch-size", str(options.batch_size), "--lr", repr(options.lr / RATES[rate][1]),
             "--augment", VIEWS[view][1].format(area=options.min_area), "--seed", str(seed), "--device", "cpu",
             "--threads", str(max(1, options.threads // ranks)), "--workers", "1", "--eval-every", "0",
             "--keep-last", "1", "--out", str(out)]
    if options.max_steps > 0:
        words += ["--max-steps", str(options.max_steps)]
    else:
        words += ["--epochs", str(what["epochs"] if options.epochs is None else options.epochs)]
    return words + NORMS[norm][1]


def wait_for(processes, logs):
    """Returns exit code 0, or the code and last line of the first rank that failed; kills the other ranks then."""
    while True:
        codes = [process.poll() for process in processes]
        failed = [(rank, code) for rank, code in enumerate(codes) if code not in (None, 0)]
        if failed:
            deadline = time.monotonic() + 2  # the ranks notify each other first
            for process in processes:
                try:
                    process.wait(max(0, deadline - time.monotonic()))
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
            rank, code = failed[0]
            logs[rank].seek(0)
            return code, logs[rank].read().decode(errors="replace").strip().splitlines()[-1:]
        if all(code == 0 for code in codes):
            return 0, []
        time.sleep(0.01)


def train(options, combination):
    ranks = 1 if combination[1] == "one" else options.ranks
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "run"
        command = command_of(options, combination, ranks, out)
        processes, logs = [], []
        begin = time.monotonic()
        try:
            for rank in range(ranks):
                environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(ranks), OMP_WAIT_POLICY="passive")
                rendezvous = ["--rendezvous", f"file://{directory}/rendezvous"] if ranks > 1 else []
                logs.append(open(pathlib.Path(directory) / f"rank{rank}.txt", "w+b"))
                processes.append(subprocess.Popen(command + rendezvous, env=environment, stdin=subprocess.DEVNULL,
                                                  stdout=logs[-1], stderr=logs[-1]))
            code, last_words = wait_for(processes, logs)
        finally:  # also after Ctrl-C
            for process in processes:
                process.kill()
                process.wait()
            for log in logs:
                log.close()
        cell = {"seconds": round(time.monotonic() - begin, 1), "command": " ".join(command[1:])}
        if code == DIVERGED:
            return dict(cell, test_accuracy=None)
        if code != 0:
            fail(f"{key_of(combination)}: {' '.join(last_words) or 'no output'} (exit code {code})\n  "
                 f"{' '.join(command)}")
        events = [json.loads(line) for line in (out / "log.jsonl").read_text(encoding="utf-8").splitlines()]
        result = next(event for event in reversed(events) if event["event"] == "result")
        losses = [event["average_loss"] for event in events if event["event"] == "step"]
        cell.update({name: result[name] for name in ("test_accuracy", "test_loss", "images_per_second", "steps")})
        return dict(cell, train_loss=losses[-1] if losses else None)


def accuracies(results, dataset, **wanted):
    """Returns the accuracies of all cells with these levels; None for a training that diverged."""
    found = []
    for key, cell in results["cells"].items():
        levels = dict(zip(("dataset", "norm", "rate", "view", "seed"), key.split("/")))
        if levels["dataset"] == dataset and all(levels[name] == level for name, level in wanted.items()):
            found.append(cell["test_accuracy"])
    return found


def mean(values):
    return sum(values) / len(values)


def format_accuracies(values):
    if not values:
        return "–"
    known = [100 * value for value in values if value is not None]
    diverged = len(values) - len(known)
    text = f"{mean(known):.1f}" if known else ""
    if len(known) > 1:
        text += f" ({min(known):.1f} to {max(known):.1f})"
    return ", ".join(part for part in (text, f"{diverged} diverged" if diverged else "") if part)


def norm_title(norm, results):
    return NORMS[norm][0].format(n=results["settings"]["ranks"])


def table_of(results, datasets):
    lines = []
    groups = [(rate, view) for rate in RATES for view in VIEWS]
    for dataset in datasets:
        lines += [f"**{DATASETS[dataset]['title']}**, test accuracy in %", "",
                  f"| normalization | {' | '.join(f'{RATES[rate][0]}, {VIEWS[view][0]}' for rate, view in groups)} |",
                  "|---|" + "---|" * len(groups)]
        for norm in NORMS:
            cells = [format_accuracies(accuracies(results, dataset, norm=norm, rate=rate, view=view))
                     for rate, view in groups]
            lines.append(f"| {norm_title(norm, results)} | " + " | ".join(cells) + " |")
        lines += ["", "| one choice, over all others | test accuracy in %, mean |", "|---|---|"]
        choices = [("norm", norm, norm_title(norm, results)) for norm in NORMS]
        choices += [("rate", rate, RATES[rate][0]) for rate in RATES]
        choices += [("view", view, VIEWS[view][0]) for view in VIEWS]
        for factor, level, title in choices:
            known = [100 * value for value in accuracies(results, dataset, **{factor: level}) if value is not None]
            lines.append(f"| {title} | {f'{mean(known):.1f}' if known else '–'} |")
        lines.append("")
    settings = results["settings"]
    length = f"{settings['max_steps']} steps" if settings["max_steps"] > 0 else ", ".join(
        f"{DATASETS[dataset]['title']} {settings['epochs'] or DATASETS[dataset]['epochs']} epochs"
        for dataset in datasets)
    lines.append(f"{settings['model']}, global batches of {settings['batch_size']}, {length}; {settings['ranks']} "
                 f"ranks have {settings['batch_size'] // settings['ranks']} samples each. Total training time: "
                 f"{sum(cell['seconds'] for cell in results['cells'].values()):.0f} s.")
    return "\n".join(lines) + "\n"


def parse():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0],
                                     formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    root = pathlib.Path(__file__).resolve().parent.parent
    parser.add_argument("--train", type=pathlib.Path, default=root / "build/release/bin/convoy-train",
                        help="path of convoy-train")
    parser.add_argument("--data", type=pathlib.Path, default=os.environ.get("CONVOY_DATA", "data"),
                        help="directory with cifar10/ and flowers/")
    parser.add_argument("--out", type=pathlib.Path, default="runs/batch-norm")
    parser.add_argument("--datasets", default=",".join(DATASETS),
                        help="comma-separated data sets, of " + ", ".join(DATASETS))
    parser.add_argument("--model", default="resnet20")
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--threads", type=int, default=os.cpu_count(), help="number of threads of all ranks together")
    parser.add_argument("--batch-size", type=int, default=32, help="global batch size")
    parser.add_argument("--lr", type=float, default=0.1, help="learning rate as meant")
    parser.add_argument("--min-area", type=int, default=8, help="minimum area of a box (percent of the image)")
    parser.add_argument("--epochs", type=int, help="number of epochs; if not given, 1 for cifar10 and 4 for flowers")
    parser.add_argument("--max-steps", type=int, default=0, help="number of steps, instead of epochs")
    parser.add_argument("--image-size", type=int,
                        help="image size in pixels; if not given, 48 for flowers and unchanged for cifar10")
    parser.add_argument("--seeds", type=int, default=1, help="number of trainings per combination")
    options = parser.parse_args()
    for name in ("ranks", "threads", "batch_size", "seeds"):
        if getattr(options, name) < 1:
            fail(f"--{name.replace('_', '-')}: found {getattr(options, name)}, expected 1 or more")
    options.datasets = options.datasets.split(",")
    for dataset in options.datasets:
        if dataset not in DATASETS:
            fail(f"--datasets: found {dataset}, expected {', '.join(DATASETS)}")
    if shutil.which(str(options.train)) is None:
        fail(f"--train: {options.train} is not a program")
    return options


def main():
    options = parse()
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "results.json"
    results = load(path, settings_of(options))
    missing = [combination for combination in combinations(options.datasets, options.seeds)
               if key_of(combination) not in results["cells"]]
    for number, combination in enumerate(missing, 1):
        print(f"{number} of {len(missing)}: {key_of(combination)}", end=" ", flush=True)
        cell = train(options, combination)
        results["cells"][key_of(combination)] = cell
        store(path, json.dumps(results, indent=1) + "\n")
        print(f"{format_accuracies([cell['test_accuracy']])}% in {cell['seconds']:.0f} s", flush=True)
    store(options.out / "table.md", table_of(results, options.datasets))
    print(f"{options.out}/table.md")


if __name__ == "__main__":
    main()
