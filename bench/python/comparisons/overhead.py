"""Compares the time of operations on tiny tensors with PyTorch's eager mode, on one thread, in alternating rounds.

    python3 bench/python/compare.py overhead --python /path/to/python

A round is one run of convoy-bench-overhead in its own process and one round of pytorch_overhead.py, which stays warm.
PyTorch's calls come from Python, as in its trainings. Ratios are Convoy's time over PyTorch's. Needs a Python with torch.
"""

import statistics
import sys

from comparisons.harness import (PYTORCH, Peer, collect_rounds, format_spread, ratios_by_round, run_for_json, spread,
                                 table)

PROGRAM = "convoy-bench-overhead"
PEER = PYTORCH / "pytorch_overhead.py"
MODES = {"inference_ns": "forward", "recorded_ns": "forward, recorded", "training_ns": "forward and backward"}


def compare(arguments, left):
    peer = Peer(arguments.python, PEER, ["--seconds", arguments.seconds])
    try:
        version = peer.answer("warm", left())[0]["torch"]
        command = [arguments.convoy, "--rounds", 1, "--seconds", arguments.seconds]

        def run_round(_):
            return run_for_json(command, left()), peer.ask(1, "round", left())["cases"]

        found = collect_rounds(arguments.rounds, left, run_round)
    finally:
        peer.close()

    def figures_of(name, mode):
        ours, theirs = ([each[side][name][mode] for each in found] for side in (0, 1))
        return {"convoy": spread(ours), "pytorch": spread(theirs), "ratio": ratios_by_round(ours, theirs)}

    cases = {name: {mode: figures_of(name, mode) for mode in MODES} for name in found[0][0]}
    medians = {mode: statistics.geometric_mean(case[mode]["ratio"]["median"] for case in cases.values()) for mode in MODES}
    return {"torch": version, "rounds": len(found), "cases": cases, "geometric_means": medians}


def print_figures(figures):
    print(f"ns per call, Convoy / PyTorch {figures['torch']}; ratios: median of {figures['rounds']} rounds "
          "(minimum to maximum)")
    def cells(case):
        return [f"{case[mode]['convoy']['median']:.0f} / {case[mode]['pytorch']['median']:.0f}: "
                f"{format_spread(case[mode]['ratio'])}" for mode in MODES]

    rows = [(name, *cells(case)) for name, case in figures["cases"].items()]
    rows.append(("geometric mean", *(f"{figures['geometric_means'][mode]:.2f}" for mode in MODES)))
    print("\n".join(table(("operation", *MODES.values()), rows)))


def add_flags(flags):
    flags.add_argument("--python", default=sys.executable, help="Python with torch; default: this one")
    flags.add_argument("--rounds", type=int, default=5)
    flags.add_argument("--seconds", type=float, default=0.02, help="minimum duration of a round of one case")


def check(arguments):
    """Accepts all flags."""
