#!/usr/bin/env python3
"""Measures every goal on the CPU, one stage after another, and writes the tables.

    python3 bench/measure_cpu.py --python /path/to/python          # all, within two hours
    python3 bench/measure_cpu.py --only allreduce,overlap          # some, whose rows alone are replaced
    python3 bench/measure_cpu.py --tables                          # the tables again, from the JSON files
    python3 bench/measure_cpu.py --quick --out /tmp/rehearsal      # tiny sizes: does everything run?

A stage is a command of bench/README.md. What it wrote as JSON, and on what it was measured, goes to STAGE.json in the
folder of the machine, bench/results/xeon-2-cores or such; goals.md and kernels.md there and the tables in
bench/README.md follow from these files. What a stage needs and this machine lacks (PyTorch, mpirun, a data set, vectors
of bf16) leaves it out, by name and with the reason, and keeps what was measured before. Exit code 0, or 1 where a stage
failed.
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

BENCH = pathlib.Path(__file__).resolve().parent
END_SECONDS = 120  # that a comparison has to end after its --time-limit


def cpu_info(field):
    """The first such line of /proc/cpuinfo; empty where it has none."""
    found = re.search(rf"^{field}\s*:\s*(.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return found.group(1).strip() if found else ""


def machine_name(processor, cores):
    """"Intel(R) Xeon(R) Processor @ 2.50GHz" with 2 cores: xeon-2-cores."""
    words = re.findall(r"[a-z0-9]+", re.sub(r"\((r|tm)\)", "", processor.lower()))
    family = [word for word in words if word not in ("intel", "amd", "cpu", "processor")]
    return f"{family[0] if family else 'cpu'}-{cores}-cores"


class Machine:
    """What the commands find here, and what they lack."""

    def __init__(self, options):
        self.options = options
        self.processor = cpu_info("model name") or platform.machine()
        self.cores = len(os.sched_getaffinity(0))
        self.lacks = {}  # need: reason, asked for once

    def has_python_with(self, module):
        try:
            done = subprocess.run([self.options.python, "-c", f"import {module}"], capture_output=True, text=True)
        except OSError as problem:
            return f"{self.options.python}: {problem.strerror}"
        return "" if done.returncode == 0 else f"no {module}: {last_line(done.stderr)}"

    def lack_of(self, need):
        """Why a need is not met; empty where it is."""
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
        if options.quick:  # images are made for it
            return ""
        folder = options.data / need / "train"
        return "" if folder.is_dir() else f"no folder {folder}; --data says where it is"

    def first_lack(self, stage):
        for need in stage.needs:
            if need not in self.lacks or need == "record":
                self.lacks[need] = self.lack_of(need)
            if self.lacks[need]:
                return self.lacks[need]
        return ""


def words_of(stage, quick):
    """A rehearsal's flags replace those of the same name: not every program takes one twice."""
    if not quick:
        return stage.words
    named = {word for word in stage.quick if word.startswith("-")}
    kept, drops = [], False
    for word in stage.words:
        drops = word in named or (drops and not word.startswith("-"))
        kept += [] if drops else [word]
    return kept + stage.quick


def as_typed(stage, options):
    """The command as a person would type it, with flags of this machine left out."""
    words = words_of(stage, options.quick)
    text = " ".join(words).replace("{data}", "data").replace("{out}/", "").replace("{mpirun}", options.mpirun)
    return f"python3 bench/{text}" if words[0].endswith(".py") else text


def as_run(stage, options):
    """The same with the programs' places and what a script must be told."""
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
    told = {
        "compare_step.py": ["--convoy", programs / "convoy-train", "--python", options.python],
        "compare_loader.py": ["--convoy", programs / "convoy-bench-loader", "--python", options.python],
        "compare_ranks.py": ["--bench", programs / "convoy-bench-step", "--mpirun", options.mpirun],
        "compare_accuracy.py": ["--convoy", programs / "convoy-train"],
    }[words[0]]
    return [sys.executable, "-B", BENCH / words[0], *words[1:], *told, "--time-limit", stage.seconds]


def measure(stage, machine):
    """The entry of a stage: measured, left out or failed."""
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
    for place in ("executable", "host_name"):  # Google Benchmark's, of no use elsewhere
        figures.get("context", {}).pop(place, None)
    return {**entry, "seconds": round(time.monotonic() - begin), "figures": figures}


def keep(entry, out):
    """A figure goes where another was; that there is none goes only where none was."""
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
    flags.add_argument("--only", help="stages, with commas between them, of " + names)
    flags.add_argument("--build", type=pathlib.Path, default=BENCH.parent / "build" / "release")
    flags.add_argument("--python", default=sys.executable, help="the Python with PyTorch; default: this one")
    flags.add_argument("--mpirun", default="mpirun", help="with its flags, but for -n; default: mpirun")
    flags.add_argument("--data",
                       type=pathlib.Path,
                       default=pathlib.Path(os.environ.get("CONVOY_DATA", "data")),
                       help="folder with cifar10/ and flowers/ in it; default: $CONVOY_DATA, data")
    flags.add_argument("--machine", help="name of the folder in bench/results; default: processor and cores")
    flags.add_argument("--out",
                       type=pathlib.Path,
                       help="another folder, whose figures are in no table of bench/README.md")
    flags.add_argument("--quick", action="store_true", help="a rehearsal in tiny sizes, into --out")
    flags.add_argument("--tables", action="store_true", help="measure nothing, write all tables")
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


def check_folder(flags, machine):
    """Figures of two machines in one table would be taken for one's."""
    for entry in cpu_tables.read_entries(machine.options.out).values():
        found = (entry["processor"], entry["cores"])
        if found != (machine.processor, machine.cores):
            flags.error(f"{machine.options.out}: found figures of {found[0]}, {found[1]} cores, expected those of "
                        f"{machine.processor}, {machine.cores} cores; --machine names another folder")
        if entry["quick"] and not machine.options.quick:
            flags.error(f"{machine.options.out}: found a rehearsal's figures, expected none; "
                        "--out names another folder")


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
        flags.error("--quick: its figures mean nothing, expected --out, a folder for them")
    if options.out and options.machine:
        flags.error("--machine: found --out, expected one of the two")
    program = options.build / "bin" / "convoy-train"
    if not program.exists():
        flags.error(f"--build: no {program}; cmake --preset release && cmake --build build/release")
    options.build = options.build.resolve()
    options.version = last_line(subprocess.run([program, "--version"], capture_output=True, text=True).stdout)
    machine = Machine(options)
    is_own = options.out is None
    name = options.machine or machine_name(machine.processor, machine.cores)
    options.out = (options.out or cpu_tables.RESULTS / name).resolve()
    check_folder(flags, machine)
    options.out.mkdir(parents=True, exist_ok=True)
    if options.quick:
        generated_images.write_folder(options.out / "images", 32, 20)
    failed = False
    for stage in stages:
        entry = measure(stage, machine)
        failed = failed or entry["outcome"] == "failed"
        say(stage, entry)
        keep(entry, options.out)
        cpu_tables.write_folder(options.out)  # after each: a run that is cut short has what it found
    if is_own:
        cpu_tables.write_all()
    print(options.out / "goals.md")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
