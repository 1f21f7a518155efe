#!/usr/bin/env python3
"""Compares Convoy with PyTorch or MPI, or with itself, in alternating runs on this machine.

    python3 bench/python/compare.py step --model resnet18 --batch-size 128 --python /path/to/python-with-torch
    python3 bench/python/compare.py step --help

Every comparison runs programs of --build, and writes its results as JSON if asked. Ratios are computed per round.
"""

import argparse
import pathlib
import sys

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from comparisons import accuracy, faults, loader, ranks, speedrun, step, waits  # noqa: E402
from comparisons.harness import Deadline, Unavailable, at_least, write_json  # noqa: E402

COMPARISONS = {"step": step, "speedrun": speedrun, "loader": loader, "accuracy": accuracy,
               "ranks": ranks, "faults": faults, "waits": waits}
BUILD = pathlib.Path("build/release")


def parser():
    """Returns the parser of all subcommands. Each module adds its flags to the common ones."""
    program = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    subcommands = program.add_subparsers(dest="comparison", required=True)
    for name, module in COMPARISONS.items():
        flags = subcommands.add_parser(name, help=module.__doc__.splitlines()[0], description=module.__doc__,
                                       formatter_class=argparse.RawDescriptionHelpFormatter)
        flags.add_argument("--build", type=pathlib.Path, default=BUILD, help=f"build directory; default: {BUILD}")
        flags.add_argument("--convoy", help=f"program to measure; default: {module.PROGRAM} of --build")
        flags.add_argument("--time-limit", type=at_least(1, float), help="time limit of the whole comparison (seconds)")
        flags.add_argument("--json", type=pathlib.Path, help="result file (JSON)")
        flags.add_argument("--check-flags", action="store_true", help="only check the flags, before a build for example")
        module.add_flags(flags)
        flags.set_defaults(module=module, error=flags.error)
    return program


def main():
    arguments = parser().parse_args()
    module = arguments.module
    arguments.convoy = arguments.convoy or arguments.build / "bin" / module.PROGRAM
    if arguments.json and not arguments.json.absolute().parent.is_dir():  # before anything is measured
        arguments.error(f"--json: found no directory {arguments.json.parent}")
    module.check(arguments)
    if arguments.check_flags:
        return
    try:
        figures = module.compare(arguments, Deadline(arguments.time_limit).left)
    except Unavailable as problem:
        sys.exit(f"compare {arguments.comparison}: {problem}")
    write_json(arguments.json, figures)
    module.print_figures(figures)


if __name__ == "__main__":
    main()
