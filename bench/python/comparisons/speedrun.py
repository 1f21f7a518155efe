"""Trains by the speed recipe with several seeds: test accuracies and times, optionally compared with PyTorch.

    python3 bench/python/compare.py speedrun --seeds 5 --json speedrun.json --plot speedrun.svg
    python3 bench/python/compare.py speedrun --seeds 5 --python /path/to/python-with-torch --flags --epochs 4

Each seed is one training of Convoy and, with --python, one of pytorch_speedrun.py with the same numbers on the same
files, alternating. --python-compile MODE adds a side, PyTorch with torch.compile. --block N alternates after N
trainings, which each side makes in one process. Of each side: the accuracy of the mean over six views (--tta), the
seconds of the training, of this evaluation and of what the rule of the records times (both of them, and the whitening
of the first layer, which PyTorch's seconds of training include), and the seconds from the start of the process to the
end of its first training, which include reading the images. With --block, that first training is the warm-up of
Convoy's process, and its seconds do not count; pytorch_speedrun.py has a warm-up of its own. --time-limit ends the
comparison and keeps the results of the sides that have finished. The standard error is that of the mean. --plot draws a
histogram. Needs Python only; --python names an interpreter with torch and Pillow.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import statistics
import tempfile
import time

from comparisons.harness import PYTORCH, Unavailable, at_least, collect_rounds, cpu_info, last_event, run_to_end, table

PROGRAM = "convoy-train"
PEER = PYTORCH / "pytorch_speedrun.py"
FIGURES = ("test_accuracy", "tta_accuracy", "train_seconds", "tta_seconds", "record_seconds", "process_seconds")
COLORS = {"convoy": "#2a78b5", "pytorch": "#c2571a", "compiled": "#5f8f3e"}
WIDTH, HEIGHT, MARGIN, BIN = 720, 260, 44, 0.1  # BIN: percent of accuracy


def train_convoy(arguments, first, count, seconds):
    """Trains with `count` seeds from `first` on in one process (--repeat). The first training has `process_seconds`, up
    to its result. Of several, it is also the warm-up of the process, so that it has no `train_seconds`."""
    with tempfile.TemporaryDirectory() as out:
        out = pathlib.Path(out) / "run"
        command = [arguments.convoy, "--model", arguments.model, "--seed", first, "--out", out, "--tta",
                   "--eval-every", 0, "--save-every", 1000000, "--threads", arguments.threads,
                   "--device", arguments.device, "--precision", arguments.precision, *arguments.flags]
        command += ["--data", arguments.data] if arguments.data else []
        command += ["--repeat", count] if count > 1 else []
        begin = datetime.datetime.now(datetime.timezone.utc)
        run_to_end(command, seconds)
        runs = []
        for seed in range(first, first + count):
            directory = out / f"seed-{seed}" if count > 1 else out
            result = last_event(directory / "log.jsonl", "result")
            runs.append({figure: result[figure] for figure in FIGURES[:4]})
            runs[-1]["record_seconds"] = sum(result.get(f"{part}_seconds", 0) for part in ("initialization", "train", "tta"))
            if seed == first:
                end = datetime.datetime.fromisoformat(result["time"].replace("Z", "+00:00"))
                runs[0]["process_seconds"] = (end - begin).total_seconds()
        if count > 1:
            runs[0]["cold_train_seconds"] = runs[0].pop("train_seconds")
            del runs[0]["record_seconds"]
    return runs


def train_pytorch(arguments, mode, first, count, seconds, directory):
    """Trains with `count` seeds from `first` on in one process, with a mode of torch.compile or "no". Only the first
    training has `process_seconds`."""
    config = directory / "config.toml"
    if not config.exists():
        config.write_text(run_to_end([arguments.convoy, "--model", arguments.model, "--print-config", *arguments.flags],
                                     seconds).out)
    begin = time.monotonic()
    out = run_to_end([arguments.python, PEER, "--config", config, "--data", pathlib.Path(arguments.data) / "cifar10",
                      "--cache", arguments.cache or directory / "images.pt", "--seed", first, "--seeds", count,
                      "--compile", mode, "--threads", arguments.threads, "--device", arguments.device,
                      "--precision", arguments.python_precision], seconds).out
    runs = [json.loads(line) for line in out.splitlines()]
    ends = [run.pop("end") for run in runs]
    for run in runs:
        run["record_seconds"] = run["train_seconds"] + run["tta_seconds"]
    runs[0]["process_seconds"] = ends[0] - begin
    return runs


def summary_of(runs):
    figures = {"seeds": len(runs)}
    for figure in FIGURES:
        each = [run[figure] for run in runs if figure in run]
        error = statistics.stdev(each) / len(each) ** 0.5 if len(each) > 1 else None
        figures[figure] = {"mean": statistics.mean(each), "standard_error": error, "each": each}
    return figures


def versions(arguments, seconds):
    """Returns the versions of each side."""
    found = {"convoy": run_to_end([arguments.convoy, "--version"], seconds).out.splitlines()}
    if arguments.python:
        found["pytorch"] = run_to_end([arguments.python, "-c", "import torch; print(torch.__version__)"], seconds).out.strip()
    return found


def compare(arguments, left):
    left_out, about = {}, versions(arguments, left())
    with tempfile.TemporaryDirectory() as directory:

        def run_block(before):
            first = arguments.first_seed + before * arguments.block
            count = min(arguments.block, arguments.first_seed + arguments.seeds - first)
            found = {"convoy": train_convoy(arguments, first, count, left())}
            modes = {"pytorch": arguments.python and "no", "compiled": arguments.python_compile}
            for side, mode in modes.items():
                if not mode or side in left_out:
                    continue
                try:
                    found[side] = train_pytorch(arguments, mode, first, count, left(), pathlib.Path(directory))
                except Unavailable as problem:
                    if side == "pytorch" and left() > 0:
                        raise
                    left_out[side] = f"from seed {first} on: {problem}"  # the other sides' results are kept
            for side, runs in found.items():
                for seed, run in enumerate(runs, first):
                    print(f"  seed {seed}  {side:8s}{100 * run['tta_accuracy']:.2f} %  "
                          f"{run.get('train_seconds', run.get('cold_train_seconds')):.2f} s",
                          flush=True)
            return found

        found = collect_rounds(-(-arguments.seeds // arguments.block), left, run_block)
    figures = {"model": arguments.model, "device": arguments.device, "flags": arguments.flags,
               "threads": arguments.threads, "precision": arguments.precision,
               "python_precision": arguments.python_precision,
               "date": datetime.date.today().isoformat(), "processor": cpu_info("model name") or platform.machine(), "versions": about,
               "sides": {side: summary_of([run for each in found for run in each.get(side, [])]) for side in found[0]},
               "left_out": left_out}
    if arguments.plot:
        arguments.plot.write_text(histogram(figures))
    return figures


def histogram(figures):
    """Returns an SVG of the number of seeds by accuracy, in bins of 0.1 %."""
    accuracies = {side: [100 * value for value in entry["tta_accuracy"]["each"]]
                  for side, entry in figures["sides"].items()}
    lowest = min(min(values) for values in accuracies.values())
    first = int(lowest / BIN) - 1
    bins = int(max(max(values) for values in accuracies.values()) / BIN) - first + 2
    counts = {side: [sum(int(value / BIN) - first == i for value in values) for i in range(bins)]
              for side, values in accuracies.items()}
    top = max(max(each) for each in counts.values())
    column = (WIDTH - 2 * MARGIN) / bins
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
             f'font-family="sans-serif" font-size="12" fill="#333333">',
             f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>']
    for number, (side, each) in enumerate(counts.items()):
        width = column * 0.9 / len(counts)
        for i, count in enumerate(each):
            height = (HEIGHT - 2 * MARGIN) * count / top
            parts.append(f'<rect x="{MARGIN + i * column + number * width:.1f}" y="{HEIGHT - MARGIN - height:.1f}" '
                         f'width="{width:.1f}" height="{height:.1f}" fill="{COLORS[side]}"/>')
        mean = statistics.mean(accuracies[side])
        parts.append(f'<text x="{MARGIN}" y="{20 + 16 * number}" fill="{COLORS[side]}">{side}: mean {mean:.2f} % over '
                     f'{len(accuracies[side])} seeds</text>')
    for i in range(0, bins + 1, max(1, bins // 8)):
        parts.append(f'<text x="{MARGIN + i * column:.1f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">'
                     f'{(first + i) * BIN:.1f}</text>')
    parts.append(f'<text x="{WIDTH / 2}" y="{HEIGHT - 6}" text-anchor="middle">test accuracy of {figures["model"]} '
                 f'(percent), mean over six views</text></svg>')
    return "\n".join(parts) + "\n"


def with_error(entry, factor, digits):
    error = "" if entry["standard_error"] is None else f" ± {factor * entry['standard_error']:.{digits}f}"
    return f"{factor * entry['mean']:.{digits}f}{error}"


def seconds(entry):
    return with_error(entry, 1, 1 if entry["mean"] >= 10 else 3)


def print_figures(figures):
    print(f"{figures['model']}, {figures['threads']} threads {' '.join(figures['flags'])}: mean ± standard error")
    rows = [(side, entry["seeds"], with_error(entry["tta_accuracy"], 100, 2), with_error(entry["test_accuracy"], 100, 2),
             *(seconds(entry[f"{timed}_seconds"]) for timed in ("train", "tta", "record", "process")))
            for side, entry in figures["sides"].items()]
    print("\n".join(table(("side", "seeds", "accuracy, six views (%)", "one view (%)", "training (s)", "six views (s)",
                           "by the rule (s)", "process (s)"), rows)))
    for side, why in figures["left_out"].items():
        print(f"{side} was left out {why}")


def add_flags(flags):
    flags.add_argument("--model", default="speedrun-small", choices=["speedrun-small", "speedrun", "speedrun-96"])
    flags.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    flags.add_argument("--precision", default="fp32", help="of Convoy")
    flags.add_argument("--data", default=os.environ.get("CONVOY_DATA"), help="directory that contains cifar10/")
    flags.add_argument("--seeds", type=at_least(1), default=5, help="trainings per side")
    flags.add_argument("--first-seed", type=at_least(0), default=1)
    flags.add_argument("--block", type=at_least(1), default=1, help="trainings of a side before the other one's")
    flags.add_argument("--python", help="interpreter with torch and Pillow: trains in PyTorch as well")
    flags.add_argument("--cache", type=pathlib.Path, help="file of the images that PyTorch decodes, kept for other runs")
    flags.add_argument("--python-precision", default="fp32", choices=["fp32", "bf16", "fp16"], help="of PyTorch")
    flags.add_argument("--python-compile", metavar="MODE", help="of torch.compile, such as max-autotune: one more side")
    flags.add_argument("--threads", type=at_least(1), default=len(os.sched_getaffinity(0)))
    flags.add_argument("--plot", type=pathlib.Path, help="result file (SVG)")
    flags.add_argument("--flags", nargs=argparse.REMAINDER, default=[], help="further flags of convoy-train; the last one")


def check(arguments):
    if arguments.data and not pathlib.Path(arguments.data).is_dir():
        arguments.error(f"--data: found no directory {arguments.data}")
    if arguments.plot and not arguments.plot.absolute().parent.is_dir():  # before trainings of many minutes
        arguments.error(f"--plot: found no directory {arguments.plot.parent}")
    if arguments.python and not arguments.data:
        arguments.error("--python: requires --data or CONVOY_DATA, whose images PyTorch reads")
    if arguments.python_compile and not arguments.python:
        arguments.error("--python-compile: requires --python")
