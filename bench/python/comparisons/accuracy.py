"""Compares test accuracy after short trainings with and without Winograd convolutions, per seed.

    python3 bench/python/compare.py accuracy --data data --seeds 5 --max-steps 390

A seed fixes initialization, order and augmentation, so two trainings with one seed differ only in how convolutions
round. Many steps amplify rounding to different networks. The comparison is therefore over the seeds: the difference
of each pair, their mean, and its standard error (the standard deviation of the differences divided by the square root
of their number). A mean within two standard errors of 0 is consistent with chance.
"""

import os
import pathlib
import statistics
import tempfile

from comparisons.harness import Unavailable, at_least, collect_rounds, last_event, run_to_end

PROGRAM = "convoy-train"
SIDES = ("on", "off")  # values of CONVOY_WINOGRAD
MIN_SEEDS = 2  # the standard deviation needs two


def train(arguments, side, seed, seconds):
    """Trains and returns the final test accuracy and loss."""
    with tempfile.TemporaryDirectory() as out:
        command = [arguments.convoy, "--dataset", arguments.dataset, "--model", arguments.model, "--seed", seed,
                   "--max-steps", arguments.max_steps, "--batch-size", arguments.batch_size, "--device", "cpu",
                   "--threads", arguments.threads, "--eval-every", 0, "--save-every", 1000000, "--keep-last", 1,
                   "--out", out]
        command += ["--data", arguments.data, "--no-download"] if arguments.data else []
        run_to_end(command, seconds, {"CONVOY_WINOGRAD": side})
        result = last_event(pathlib.Path(out) / "log.jsonl", "result")
    return {"accuracy": result["test_accuracy"], "loss": result["test_loss"]}


def statistics_of(values):
    return {"mean": statistics.mean(values), "standard_deviation": statistics.stdev(values), "each": values}


def differences(on, off):
    """Returns the mean difference of pairs and its standard error."""
    found = [first - second for first, second in zip(on, off)]
    return {"mean": statistics.mean(found), "standard_error": statistics.stdev(found) / len(found)**0.5}


def compare(arguments, left):
    def run_seed(before):
        found = {}
        for side in SIDES:
            found[side] = train(arguments, side, before + 1, left())
            print(f"  seed {before + 1}, Winograd {side:3s}  {100 * found[side]['accuracy']:.2f} %", flush=True)
        return found

    found = collect_rounds(arguments.seeds, left, run_seed)
    if len(found) < MIN_SEEDS:
        raise Unavailable(f"{len(found)} seed in {arguments.time_limit:.0f} s, expected {MIN_SEEDS} or more")

    def all_of(side, what):
        return [each[side][what] for each in found]

    return {"dataset": arguments.dataset, "model": arguments.model, "max_steps": arguments.max_steps,
            "batch_size": arguments.batch_size, "seeds": len(found),
            "accuracy": {side: statistics_of(all_of(side, "accuracy")) for side in SIDES},
            "loss": {side: statistics_of(all_of(side, "loss")) for side in SIDES},
            "accuracy_difference": differences(all_of("on", "accuracy"), all_of("off", "accuracy")),
            "loss_difference": differences(all_of("on", "loss"), all_of("off", "loss"))}


def print_figures(figures):
    print(f"{figures['model']} on {figures['dataset']}, {figures['max_steps']} steps of {figures['batch_size']}, "
          f"{figures['seeds']} seeds: test accuracy")
    for side in SIDES:
        entry = figures["accuracy"][side]
        print(f"  Winograd {side:3s}  {100 * entry['mean']:.2f} %, standard deviation "
              f"{100 * entry['standard_deviation']:.2f}")
    difference = figures["accuracy_difference"]
    print(f"  difference    {100 * difference['mean']:+.2f}, standard error {100 * difference['standard_error']:.2f}")


def add_flags(flags):
    flags.add_argument("--dataset", default="cifar10")
    flags.add_argument("--data", help="directory of the data set; default: that of convoy-train")
    flags.add_argument("--model", default="resnet20")
    flags.add_argument("--seeds", type=at_least(MIN_SEEDS), default=5, help="trainings per side")
    flags.add_argument("--max-steps", type=at_least(1), default=390, help="steps per training")
    flags.add_argument("--batch-size", type=at_least(1), default=128)
    flags.add_argument("--threads", type=at_least(1), default=len(os.sched_getaffinity(0)))


def check(arguments):
    if arguments.data and not pathlib.Path(arguments.data).is_dir():
        arguments.error(f"--data: found no directory {arguments.data}")
