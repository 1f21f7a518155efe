#!/usr/bin/env python3
"""Measures all goals on the CPU, stage by stage, and writes the tables.

    python3 bench/python/measure_cpu.py --python /path/to/python          # all stages, within two hours
    python3 bench/python/measure_cpu.py --only allreduce,ranks            # some stages; other rows stay
    python3 bench/python/measure_cpu.py --tables                          # only write the tables from the JSON files
    python3 bench/python/measure_cpu.py --quick --out /tmp/rehearsal      # rehearsal with tiny sizes

A stage is a command of bench/README.md. Its JSON output, with the machine, is written to STAGE.json in the directory of
the machine, such as bench/results/xeon-2-cores. goals.md and kernels.md in that directory and the tables in
bench/README.md are generated from these files. A stage whose requirements (PyTorch, mpirun, a data set, AVX512-BF16)
are not met is left out: its name and the reason are printed, and earlier results are kept. The exit code is 1 if a
stage failed, else 0.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shlex
import shutil
import subprocess
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cpu_tables  # noqa: E402
import generated_images  # noqa: E402
from comparisons.harness import Unavailable, cpu_info, last_line, run_for_json  # noqa: E402
from cpu_goals import STAGES  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent.parent  # the repository's bench/
COMPARE = BENCH / "python" / "compare.py"
GRACE_SECONDS = 120  # that a comparison has to end after its --time-limit


def machine_name(processor, cores):
    """"Intel(R) Xeon(R) Processor @ 2.50GHz" with 2 cores: xeon-2-cores."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\((r|tm)\)", "", processor.lower()))
    family = [word for word in words if word not in ("intel", "amd", "cpu", "processor")]
    return f"{family[0] if family else 'cpu'}-{cores}-cores"


class Machine:
    """This machine, and which requirements of stages it does not meet."""

    def __init__(self, options):
        self.options = options
        self.processor = cpu_info("model name") or platform.machine()
        self.cores = len(os.sched_getaffinity(0))
        self.reasons = {}  # {requirement: why it is not met}, determined once

    def reason_without_module(self, module):
        """Returns why --python cannot import a module; empty if it can."""
        try:
            done = subprocess.run([self.options.python, "-c", f"import {module}"], capture_output=True, text=True)
        except OSError as problem:
            return f"{self.options.python}: {problem.strerror}"
        return "" if done.returncode == 0 else f"no {module}: {last_line(done.stderr)}"

    def reason_without(self, requirement):
        """Returns why a requirement is not met; empty if it is met."""
        if requirement in ("torch", "torchvision"):
            return self.reason_without_module(requirement)
        if requirement == "mpirun":
            program = shlex.split(self.options.mpirun)[0]
            return "" if shutil.which(program) else f"no {program}"
        if requirement == "bf16":
            return "" if "avx512_bf16" in cpu_info("flags").split() else "the processor has no AVX512-BF16"
        directory = self.options.data / requirement / "train"  # a data set; a rehearsal generates its images
        return "" if self.options.quick or directory.is_dir() else f"no directory {directory}; set --data"

    def unmet_requirement(self, stage):
        """Returns why the first unmet requirement of a stage is not met; empty if all are met."""
        for requirement in stage.requirements:
            if requirement not in self.reasons:
                self.reasons[requirement] = self.reason_without(requirement)
            if self.reasons[requirement]:
                return self.reasons[requirement]
        return ""


def stage_command(stage, quick):
    """Returns the words of a stage's command. The flags of a rehearsal replace flags of the same name."""
    if not quick:
        return stage.command
    replaced = {word for word in stage.quick_flags if word.startswith("-")}
    kept, drop = [], False
    for word in stage.command:
        drop = word in replaced or (drop and not word.startswith("-"))
        kept += [] if drop else [word]
    return kept + stage.quick_flags


def documented_command(stage, options):
    """Returns the command for the tables: without machine-specific paths and flags."""
    text = " ".join(stage_command(stage, options.quick))
    text = text.replace("{data}", "data").replace("{out}/", "").replace("{mpirun}", options.mpirun)
    return f"python3 bench/python/{text}" if stage.is_comparison else text


def executed_command(stage, options):
    """Returns the command with the paths of programs and machine-specific flags."""
    words = []
    for word in stage_command(stage, options.quick):
        if word == "{mpirun}":
            words += shlex.split(options.mpirun)
        elif word.startswith("convoy-"):
            words.append(options.build / "bin" / word)
        else:
            words.append(word.replace("{data}", str(options.data)).replace("{out}", str(options.out)))
    if not stage.is_comparison:
        return words
    words += ["--build", options.build, "--time-limit", stage.seconds]
    words += ["--mpirun", options.mpirun] if "mpirun" in stage.requirements else []
    words += ["--python", options.python] if {"torch", "torchvision"} & set(stage.requirements) else []
    return [sys.executable, "-B", COMPARE, *words[1:]]


def measure(stage, machine):
    """Runs a stage and returns its entry: measured, left out or failed."""
    options = machine.options
    entry = {"stage": stage.name, "outcome": "measured", "processor": machine.processor, "cores": machine.cores,
             "version": options.version, "date": datetime.date.today().isoformat(), "quick": options.quick,
             "command": documented_command(stage, options)}
    reason = machine.unmet_requirement(stage)
    if reason:
        return {**entry, "outcome": "left out", "why": reason}
    begin = time.monotonic()
    try:
        figures = run_for_json(executed_command(stage, options), stage.seconds + GRACE_SECONDS, flag=stage.json_flag)
    except Unavailable as problem:
        return {**entry, "outcome": "failed", "why": str(problem)}
    if "benchmarks" in figures:  # of Google Benchmark, with machine-specific fields and those of repetitions
        figures = {"context": {name: value for name, value in figures["context"].items() if name in cpu_tables.CONTEXT},
                   "benchmarks": [{name: row[name] for name in cpu_tables.COUNTERS if name in row}
                                  for row in figures["benchmarks"]]}
    return {**entry, "seconds": round(time.monotonic() - begin), "figures": figures}


def store(entry, out):
    """Writes the entry to its JSON file. An entry without results does not replace earlier results."""
    file = out / f"{entry['stage']}.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    if entry["outcome"] == "measured" or before.get("outcome") != "measured":
        file.write_text(json.dumps(entry, indent=1) + "\n")


def print_entry(stage, entry):
    if entry["outcome"] != "measured":
        print(f"{stage.name}: {entry['outcome']}: {entry['why']}", flush=True)
        return
    print(f"{stage.name}: {entry['seconds']} s", flush=True)
    for goal, text, target, outcome, _ in cpu_tables.rows_of(stage, entry):
        print(f"  {goal}: {text}; {target} {outcome.strip('*')}", flush=True)


def parser():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(stage.name for stage in STAGES)
    flags.add_argument("--only", help="comma-separated stages: " + names)
    flags.add_argument("--build", type=pathlib.Path, default=BENCH.parent / "build" / "release")
    flags.add_argument("--python", default=sys.executable, help="Python interpreter with PyTorch; default: this one")
    flags.add_argument("--mpirun", default="mpirun", help="launcher and its flags, without -n; default: mpirun")
    flags.add_argument("--data", type=pathlib.Path, default=pathlib.Path(os.environ.get("CONVOY_DATA", "data")),
                       help="directory that contains cifar10/ and flowers/; default: $CONVOY_DATA or data")
    flags.add_argument("--machine", help="directory name in bench/results; default: from processor and cores")
    flags.add_argument("--out", type=pathlib.Path, help="output directory; its results are not added to bench/README.md")
    flags.add_argument("--quick", action="store_true", help="rehearsal with tiny sizes; requires --out")
    flags.add_argument("--tables", action="store_true", help="only write all tables")
    return flags


def chosen_stages(flags, options):
    if options.only is None:
        return STAGES
    by_name = {stage.name: stage for stage in STAGES}
    chosen = [name for name in options.only.split(",") if name]
    for name in chosen:
        if name not in by_name:
            flags.error(f"--only: found '{name}', expected {', '.join(by_name)}")
    return [stage for stage in STAGES if stage.name in chosen]


def check_directory(flags, machine):
    """Exits with an error if the output directory has results of another machine or of a rehearsal."""
    for entry in cpu_tables.read_entries(machine.options.out).values():
        found = (entry["processor"], entry["cores"])
        if found != (machine.processor, machine.cores):
            flags.error(f"{machine.options.out}: found results of {found[0]}, {found[1]} cores, expected those of "
                        f"{machine.processor}, {machine.cores} cores; set --machine to use another directory")
        if entry["quick"] and not machine.options.quick:
            flags.error(f"{machine.options.out}: found results of a rehearsal; "
                        "set --out to use another directory")


def main():
    flags = parser()
    options = flags.parse_args()
    if options.tables:
        try:
            cpu_tables.write_all()
        except Unavailable as problem:
            sys.exit(f"measure_cpu: {problem}")
        return 0
    stages = chosen_stages(flags, options)
    if options.quick and not options.out:
        flags.error("--quick: requires --out, because the results are not meaningful")
    if options.out and options.machine:
        flags.error("--machine: found --out too, expected only one of them")
    program = options.build / "bin" / "convoy-train"
    if not program.exists():
        flags.error(f"--build: found no {program}; run cmake --preset release && cmake --build build/release")
    options.build = options.build.resolve()
    options.version = last_line(subprocess.run([program, "--version"], capture_output=True, text=True).stdout)
    machine = Machine(options)
    is_own = options.out is None
    name = options.machine or machine_name(machine.processor, machine.cores)
    options.out = (options.out or cpu_tables.RESULTS / name).resolve()
    check_directory(flags, machine)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.quick:
        generated_images.write_dataset(options.out / "images", 32, 20)
    failed = False
    for stage in stages:
        entry = measure(stage, machine)
        failed = failed or entry["outcome"] == "failed"
        print_entry(stage, entry)
        store(entry, options.out)
        cpu_tables.write_directory(options.out)  # after each stage, so that an interrupted run keeps its results
    if is_own:
        cpu_tables.write_all()
    print(options.out / "goals.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
