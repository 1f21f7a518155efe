#!/usr/bin/env python3
"""Runs the checks that need a real GPU, and writes one JSON file and one Markdown table.

Called by scripts/validate_gpu.sh, which sets up the libraries. Stages run in order, each for a limited time; a failure
does not stop the others. A stage that passed is not run again, except with --again. Exit code 0: all passed; 1: one
failed; 3: none failed, but something was left out because of missing time or missing requirements.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import sys
import time

sys.dont_write_bytecode = True
from gpu_validation import bandwidth, build, clocks, counters, device_tests, environment, hopper, hypothesis, losses, nccl
from gpu_validation import rates, report, smoke, speedrun, timeline, training
from gpu_validation.work import Failed, Work, last_line, outcome_of

ROOT = pathlib.Path(__file__).resolve().parent.parent
RESULTS = ROOT / "bench" / "results"
# Name, function, time limit in seconds; the most valuable ones first.
STAGES = (
    ("environment", environment.run, 60),
    ("build", build.run, 20),
    ("smoke", smoke.run, 100),
    ("speedrun", speedrun.run, 330),
    ("losses", losses.run, 90),
    ("training", training.run, 80),
    rates.STAGES[0],
    ("hypothesis", hypothesis.run, 120),
    ("hopper", hopper.run, 40),
    ("timeline", timeline.run, 50),
    ("racecheck", device_tests.run_racecheck, 80),
    ("tests", device_tests.run, 200),
    ("sanitizer", device_tests.run_sanitizer, 120),
    ("nccl", nccl.run, 250),
    ("bandwidth", bandwidth.run, 90),
    ("counters", counters.run, 60),
    ("cold_start", rates.run_cold_start, 70),
    *rates.STAGES[1:],
)
# Two calls on a machine for a quarter of an hour: stages, and their limits in seconds where others are
# meant for longer calls. The first needs no thought; --hypotheses asks the second what the first one has raised.
CALL_SECONDS = 330
CALLS = {
    "1": {"environment": 25, "build": 10, "rate_resnet18_128": 40, "hypothesis": 100, "hopper": 35,
          "timeline": 45, "racecheck": 75},
    "2": {"environment": 25, "speedrun": 75, "rate_resnet18_1024": 30, "rate_resnet50_256": 40, "counters": 60,
          "hypothesis": 90},
}
EMULATED_SLOWNESS = 20  # factor for time limits with --quick: emulated GPUs are slow even at small sizes


def write(file, text):
    """Replaces a file at once, so that a call that is killed leaves the results of the stages before."""
    part = file.with_suffix(".part")
    part.write_text(text)
    part.replace(file)


def exit_code(outcomes):
    return 1 if "failed" in outcomes else 3 if "left out" in outcomes else 0


def parse(names):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda",
                        help="build directory (default: build/cuda)")
    parser.add_argument("--out", type=pathlib.Path, default=os.environ.get("OUT"),
                        help="output directory (default: that of the environment variable OUT, or bench/results/<gpu>)")
    parser.add_argument("--call", choices=CALLS, help=f"a set of stages that takes at most {CALL_SECONDS} s")
    parser.add_argument("--hypotheses", type=pathlib.Path, metavar="FILE", help="questions of the stage hypothesis")
    parser.add_argument("--questioned", default="", metavar="STAGES",
                        help="stages that measure PyTorch again, although its figures are stored")
    parser.add_argument("--stages", help="comma-separated stages, of " + ", ".join(names))
    parser.add_argument("--resume", type=pathlib.Path, metavar="FILE",
                        help="results of an earlier run (default: validation.json in the output directory, if any)")
    parser.add_argument("--again", action="store_true", help="also run stages that have passed before")
    parser.add_argument("--budget",
                        type=float,
                        help=f"seconds for all stages; the rest is left out (default: 570, with --call {CALL_SECONDS})")
    parser.add_argument("--python", default=sys.executable, help="Python with PyTorch (default: this one)")
    parser.add_argument("--quick",
                        action="store_true",
                        help="rehearsal with tiny sizes for an emulated GPU; the figures mean nothing")
    parser.add_argument("--check-flags", action="store_true",
                        help="only check the flags, before there is a build")
    options = parser.parse_args()
    options.before = {}
    if options.resume:
        try:
            options.before = json.loads(options.resume.read_text())["stages"]
        except (OSError, ValueError, KeyError, TypeError):
            parser.error(f"--resume: {options.resume} is not a validation.json of this program")
    if options.call and options.stages:
        parser.error("--stages: found it with --call, expected one of both")
    options.limits = CALLS.get(options.call, {})
    options.budget = options.budget if options.budget is not None else CALL_SECONDS if options.call else 570
    options.stages = options.stages.split(",") if options.stages else list(options.limits or names)
    options.questioned = options.questioned.split(",") if options.questioned else []
    for flag in ("stages", "questioned"):
        for name in getattr(options, flag):
            if name not in names:
                parser.error(f"--{flag}: found '{name}', expected {', '.join(names)}")
    if options.hypotheses and not options.hypotheses.is_file():
        parser.error(f"--hypotheses: no file {options.hypotheses}")
    if options.budget < 0:
        parser.error(f"--budget: found {options.budget:g}, expected 0 or more seconds")
    if options.check_flags:
        sys.exit(0)
    if not (options.build / "bin" / "convoy-train").exists():
        parser.error(
            f"--build: no programs in {options.build / 'bin'}; run cmake --preset cuda && cmake --build build/cuda")
    return options


def main():
    begin = time.monotonic()
    options = parse([name for name, _, _ in STAGES])
    slowness = EMULATED_SLOWNESS if options.quick else 1

    def work_for(seconds, **more):
        left = options.budget * slowness - (time.monotonic() - begin)
        return Work(options.build.resolve() / "bin", min(seconds * slowness, left), options.python, options.quick, **more)

    name = environment.gpu_name(work_for(60)) or "no GPU"
    gpu = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    out = pathlib.Path(options.out) if options.out else RESULTS / gpu
    out.mkdir(parents=True, exist_ok=True)
    raw = out / "raw"
    pytorch = RESULTS / gpu.removeprefix("nvidia-") / "pytorch.json"
    shared = {"hypotheses": options.hypotheses, "questioned": options.questioned,
              "pytorch": json.loads(pytorch.read_text()) if pytorch.exists() else {}}
    file = out / "validation.json"
    before = options.before
    if not options.resume and file.exists():
        before = json.loads(file.read_text())["stages"]
    results = {"gpu": name, "date": datetime.date.today().isoformat(), "quick": options.quick, "stages": {}}
    try:
        results["version"] = last_line(work_for(60).run([options.build / "bin" / "convoy-train", "--version"]).stdout)
    except Failed as problem:
        results["version"] = str(problem)

    recorder = clocks.start(raw)
    for stage, function, seconds in STAGES:
        seconds = options.limits.get(stage, seconds)
        entry = before.get(stage)
        if stage in options.stages and (options.again or not entry or entry["outcome"] != "passed"):
            work = work_for(seconds, raw=raw / stage, **shared)
            # With less than half of its time, a stage would only give results that are worth little.
            if work.left() > seconds * slowness / 2:
                entry = outcome_of(function, work)
            elif not entry:
                entry = {"outcome": "left out", "seconds": 0,
                         "left_out": [f"it takes up to {seconds} s; another call continues here"]}
            print(f"{stage}: {report.outcome(entry)}, {entry['seconds']:.0f} s", flush=True)
        if entry:
            results["stages"][stage] = entry
        # Written after each stage, so that an interrupted run keeps its results and those of earlier calls.
        kept = {name: found for name, found in before.items() if name not in results["stages"]}
        write(file, json.dumps({**results, "stages": {**results["stages"], **kept}}, indent=1) + "\n")
        write(out / "validation.md", report.markdown({**results, "stages": {**results["stages"], **kept}}))
    clocks.stop(recorder)
    print(f"{file}\n{out / 'validation.md'}")
    return exit_code([results["stages"][stage]["outcome"] for stage in options.stages])


if __name__ == "__main__":
    sys.exit(main())
