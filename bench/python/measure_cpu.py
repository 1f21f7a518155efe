#!/usr/bin/env python3
"""Measures all goals on the CPU, stage by stage, and writes the tables.

    python3 bench/python/measure_cpu.py --python /path/to/python          # all stages, within two hours
    python3 bench/python/measure_cpu.py --only allreduce,overlap          # some stages; other rows stay
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
from comparison import Unavailable, last_line, run_for_json  # noqa: E402
from cpu_goals import STAGES  # noqa: E402

BENCH = pathlib.Path(__file__).resolve().parent.parent  # the repository's bench/
END_SECONDS = 120  # that a comparison has to end after its --time-limit


def cpu_info(field):
    """Returns the value of the first such line of /proc/cpuinfo; empty if there is none."""
    found = re.search(rf"^{field}\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1).strip() if found else ""


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
        self.lacks = {}  # {need: reason}, determined once

    def has_python_with(self, module):
        try:
            done = subprocess.run([self.options.python, "-c", f"import {module}"], capture_output=True, text=True)
        except OSError as problem:
            return f"{self.options.python}: {problem.strerror}"
        return "" if done.returncode == 0 else f"no {module}: {last_line(done.stderr)}"

    def lack_of(self, need):
        """Returns why a requirement is not met; empty if it is met."""
        options = self.options
        if need in ("torch", "torchvision"):
            return self.has_python_with(need)
        if need == "mpirun":
            program = shlex.split(options.mpirun)[0]
            return "" if shutil.which(program) else f"no {program}"
        if need == "bf16":
            return "" if "avx512_bf16" in cpu_info("flags").split() else "the processor has no AVX512-BF16"
        if need == "record":
            return "" if (options.out / "overlap_resnet18.json").exists() else "no record of the stage overlap"
        if options.quick:  # a rehearsal generates its images
            return ""
        directory = options.data / need / "train"
        return "" if directory.is_dir() else f"no directory {directory}; set --data"

    def first_lack(self, stage):
        for need in stage.needs:
            if need not in self.lacks or need == "record":
                self.lacks[need] = self.lack_of(need)
            if self.lacks[need]:
                return self.lacks[need]
        return ""


def words_of(stage, quick):
    """Returns the command of a stage. Flags of a rehearsal replace flags of the same name."""
    if not quick:
        return stage.words
    named = {word for word in stage.quick if word.startswith("-")}
    kept, drops = [], False
    for word in stage.words:
        drops = word in named or (drops and not word.startswith("-"))
        kept += [] if drops else [word]
    return kept + stage.quick


def as_typed(stage, options):
    """Returns the command as a user would type it, without machine-specific flags."""
    words = words_of(stage, options.quick)
    text = " ".join(words).replace("{data}", "data").replace("{out}/", "").replace("{mpirun}", options.mpirun)
    return f"python3 bench/python/{text}" if words[0].endswith(".py") else text


def as_run(stage, options):
    """Returns the command with the paths of programs and machine-specific flags."""
    programs, data, out = options.build / "bin", options.data, options.out
    words = []
    for word in words_of(stage, options.quick):
        if word == "{mpirun}":
            words += shlex.split(options.mpirun)
        elif word.startswith("convoy-"):
            words.append(programs / word)
        else:
            words.append(word.replace("{data}", str(data)).replace("{out}", str(out)))
    if not stage.words[0].endswith(".py"):
        return words
    extra = {
        "compare_step.py": ["--convoy", programs / "convoy-train", "--python", options.python],
        "compare_loader.py": ["--convoy", programs / "convoy-bench-loader", "--python", options.python],
        "compare_ranks.py": ["--bench", programs / "convoy-bench-step", "--mpirun", options.mpirun],
        "compare_overhead.py": ["--convoy", programs / "convoy-bench-overhead", "--python", options.python],
        "compare_accuracy.py": ["--convoy", programs / "convoy-train"],
    }[words[0]]
    return [sys.executable, "-B", BENCH / "python" / words[0], *words[1:], *extra, "--time-limit", stage.seconds]


def measure(stage, machine):
    """Runs a stage and returns its entry: measured, left out or failed."""
    options = machine.options
    entry = {"stage": stage.name, "outcome": "measured", "processor": machine.processor, "cores": machine.cores,
             "version": options.version, "date": datetime.date.today().isoformat(), "quick": options.quick,
             "command": as_typed(stage, options)}
    why = machine.first_lack(stage)
    if why:
        return {**entry, "outcome": "left out", "why": why}
    begin = time.monotonic()
    try:
        figures = run_for_json(as_run(stage, options), stage.seconds + END_SECONDS, flag=stage.json_flag)
    except Unavailable as problem:
        return {**entry, "outcome": "failed", "why": str(problem)}
    for place in ("executable", "host_name"):  # machine-specific fields of Google Benchmark
        figures.get("context", {}).pop(place, None)
    return {**entry, "seconds": round(time.monotonic() - begin), "figures": figures}


def keep(entry, out):
    """Writes the entry to its JSON file. An entry without results does not replace earlier results."""
    file = out / f"{entry['stage']}.json"
    before = json.loads(file.read_text()) if file.exists() else {}
    if entry["outcome"] == "measured" or before.get("outcome") != "measured":
        file.write_text(json.dumps(entry, indent=1) + "\n")


def say(stage, entry):
    if entry["outcome"] != "measured":
        print(f"{stage.name}: {entry['outcome']}: {entry['why']}", flush=True)
        return
    print(f"{stage.name}: {entry['seconds']} s", flush=True)
    for what, text, target, outcome, _ in cpu_tables.rows_of(stage, entry):
        print(f"  {what}: {text}; {target} {outcome.strip('*')}", flush=True)


def parser():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    names = ", ".join(stage.name for stage in STAGES)
    flags.add_argument("--only", help="comma-separated stages: " + names)
    flags.add_argument("--build", type=pathlib.Path, default=BENCH.parent / "build" / "release")
    flags.add_argument("--python", default=sys.executable, help="Python interpreter with PyTorch; default: this one")
    flags.add_argument("--mpirun", default="mpirun", help="launcher and its flags, without -n; default: mpirun")
    flags.add_argument("--data",
                       type=pathlib.Path,
                       default=pathlib.Path(os.environ.get("CONVOY_DATA", "data")),
                       help="directory that contains cifar10/ and flowers/; default: $CONVOY_DATA or data")
    flags.add_argument("--machine", help="directory name in bench/results; default: from processor and cores")
    flags.add_argument("--out",
                       type=pathlib.Path,
                       help="output directory; its results are not added to bench/README.md")
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
        say(stage, entry)
        keep(entry, options.out)
        cpu_tables.write_directory(options.out)  # after each stage, so that an interrupted run keeps its results
    if is_own:
        cpu_tables.write_all()
    print(options.out / "goals.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
