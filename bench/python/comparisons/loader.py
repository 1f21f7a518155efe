"""Compares the throughput of Convoy's and PyTorch's loaders, from image files to batches, in alternating runs.

    python3 bench/python/compare.py loader --data data/cifar10 --python /path/to/python

Both sides decode the same files, crop the padded image randomly, flip, normalize, and make batches with the same number
of workers. PyTorch decodes in each epoch, Convoy once. The comparison uses Convoy's first epoch, which includes the
decoding; later epochs, from memory, are reported too. A round is one run of convoy-bench-loader in its own process and
one epoch of each PyTorch side, which stays warm. Rates are per second of wall time, and per core-second: user and
system time of all threads and workers. Needs a Python interpreter with torchvision.
"""

import os
import pathlib
import sys

from comparisons.harness import (PYTORCH, Peer, at_least, collect_rounds, format_spread, ratios_by_round, run_for_json, spread,
                                 started_peers)

PROGRAM = "convoy-bench-loader"
PEER = PYTORCH / "pytorch_loader.py"
SIDES = ("pillow", "torchvision")
FIRST, LATER = "convoy, first epoch", "convoy, each later epoch"
RATES = ("images_per_second", "images_per_core_second")


def convoy_rates(arguments, seconds):
    """Returns the rates of the first epoch and of later ones, and the report of the run."""
    command = [arguments.convoy, "--dataset", "folder", "--data", arguments.data, "--image-size", arguments.image_size,
               "--batch-size", arguments.batch_size, "--workers", arguments.workers, "--augment",
               f"crop={arguments.crop},flip", "--epochs", arguments.epochs]
    report = run_for_json(command, seconds)
    return report["first_epoch"], {rate: report[rate]["median"] for rate in RATES}, report


def peer_rates(peer, seconds):
    found = peer.ask(1, "epochs", seconds)
    return {
        "images_per_second": found["images"] / found["seconds"],
        "images_per_core_second": found["images"] / found["core_seconds"]
    }


def compare(arguments, left):
    about = {}
    convoy_rates(arguments, left())  # reads all files into the page cache

    def start(side):
        return Peer(arguments.python, PEER, ["--data", arguments.data, "--batch-size", arguments.batch_size, "--workers",
                                             arguments.workers, "--image-size", arguments.image_size, "--crop",
                                             arguments.crop, "--decoder", side])

    def warm_up(_, peer):
        answer = peer.answer("warm", left())[0]
        about.update(torch=answer["torch"], torchvision=answer["torchvision"])
        peer_rates(peer, left())  # the first epoch, with files in the page cache

    with started_peers(arguments.sides, start, warm_up) as (peers, left_out):

        def run_round(_):
            first, later, report = convoy_rates(arguments, left())
            return report, {FIRST: first, LATER: later,
                            **{side: peer_rates(peer, left()) for side, peer in peers.items()}}

        found = collect_rounds(arguments.rounds, left, run_round)
    report = found[0][0]
    rates = {side: {rate: [each[side][rate] for _, each in found] for rate in RATES} for side in found[0][1]}

    def ratios(ours):
        return {side: {rate: ratios_by_round(rates[ours][rate], rates[side][rate]) for rate in RATES} for side in peers}

    return {"image": report["image"], "images": report["first_epoch"]["images"], "transform": report["transform"],
            "batch_size": arguments.batch_size, "workers": arguments.workers, "cores": report["machine"]["cores"],
            "rounds": len(found), **about,
            "sides": {side: {rate: spread(each[rate]) for rate in RATES} for side, each in rates.items()},
            "ratios_by_round": ratios(FIRST), "ratios_of_later_epochs": ratios(LATER), "left_out": left_out}


def print_figures(figures):
    print(f"{figures['images']} images of {'x'.join(map(str, figures['image']))}, batch {figures['batch_size']}, "
          f"{figures['workers']} workers on {figures['cores']} cores, torchvision "
          f"{figures.get('torchvision', 'not compared')}, median of {figures['rounds']} rounds (minimum to maximum)")
    for side, rates in figures["sides"].items():
        print(f"  {side:26s} {format_spread(rates['images_per_core_second'], 0)} images/core-s; "
              f"{format_spread(rates['images_per_second'], 0)} images/s")
    for side, why in figures["left_out"].items():
        print(f"  {side:26s} left out: {why}")
    for side, ratio in figures["ratios_by_round"].items():
        later = figures["ratios_of_later_epochs"][side]
        print(f"  first epoch / {side:12s} {format_spread(ratio['images_per_core_second'])} per core-second; "
              f"{format_spread(ratio['images_per_second'])} per second; later epochs "
              f"{format_spread(later['images_per_core_second'])}")


def add_flags(flags):
    flags.add_argument("--python", default=sys.executable, help="Python with torchvision; default: this one")
    flags.add_argument("--data", type=pathlib.Path, required=True, help="folder with train/CLASS/* and test/CLASS/*")
    flags.add_argument("--image-size", type=at_least(0), default=0, help="image size (pixels per side); 0: original size")
    flags.add_argument("--batch-size", type=at_least(1), default=128)
    flags.add_argument("--workers", type=at_least(1), default=len(os.sched_getaffinity(0)), help="default: number of cores")
    flags.add_argument("--crop", type=at_least(0), default=4, help="padding before the random crop (pixels)")
    flags.add_argument("--sides",
                       default=",".join(SIDES),
                       help="PyTorch decoders, comma-separated: " + ", ".join(SIDES))
    flags.add_argument("--epochs", type=at_least(1), default=2, help="epochs from memory per run of Convoy")
    flags.add_argument("--rounds", type=at_least(1), default=5)


def check(arguments):
    if not arguments.data.is_dir():
        arguments.error(f"--data: found no directory {arguments.data}")
    arguments.sides = [side for side in arguments.sides.split(",") if side]
    for side in arguments.sides:
        if side not in SIDES:
            arguments.error(f"--sides: found '{side}', expected {', '.join(SIDES)}")
