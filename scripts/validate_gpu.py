#!/usr/bin/env python3
"""Shows on a machine with a GPU what only a GPU can show, and writes one JSON file and one Markdown table.

Called by scripts/validate_gpu.sh, which sets up the libraries. Stages run in order and each goes on past the failure of
another; a stage that passed is not run again unless --again says so. Exit code 0: all passed.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
TEST_PROGRAMS = ("cuda_runtime_test", "cuda_elementwise_test", "cuda_spatial_test", "engine_cuda_test", "models_cuda_test",
                 "bench_test")
# The tests in single precision: few enough to end in minutes under a tool that slows kernels a hundredfold.
SANITIZED = (("memcheck", "cuda_spatial_test", "CudaBatchNorm/0.*:CudaPool2d/0.*:CudaConv2d/0.*:CudaMatmul/0.*:CudaAugment/0.*"),
             ("memcheck", "cuda_elementwise_test", "CudaElementwise/0.*:CudaReduce/0.*:CudaCrossEntropy/0.*:CudaOptimizer/0.*"),
             ("racecheck", "cuda_spatial_test", "CudaBatchNorm/0.*:CudaMatmul/0.*"),
             ("racecheck", "cuda_elementwise_test", "CudaReduce/0.*:CudaCrossEntropy/0.*"),
             ("initcheck", "cuda_elementwise_test", "CudaReduce/0.*:CudaCrossEntropy/0.*"),
             ("synccheck", "cuda_elementwise_test", "CudaReduce/0.*"))
# The goals of a kernel's bandwidth, as a share of a copy's.
GOALS = (("softmax", 0.92), ("batch_norm", 0.88), ("", 0.95))


class Failed(Exception):
    """A stage's finding, in one line."""


def run(command, timeout, **options):
    """The finished process; Failed where it takes longer."""
    try:
        return subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=timeout, **options)
    except subprocess.TimeoutExpired:
        raise Failed(f"{command[0]}: not done after {timeout} s") from None
    except FileNotFoundError:
        raise Failed(f"{command[0]}: not found") from None


def last_line(text):
    lines = text.strip().splitlines()
    return lines[-1] if lines else "no output"


def gpu_name():
    """As nvidia-smi has it, or None."""
    try:
        found = run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], 60)
    except Failed:
        return None
    return found.stdout.splitlines()[0].strip() if found.returncode == 0 and found.stdout.strip() else None


def environment(_):
    """What the machine has."""
    def ask(*command):
        try:
            return last_line(run(command, 60).stdout)
        except Failed as problem:
            return str(problem)

    found = {
        "gpu": ask("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"),
        "cpu": platform.processor() or platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "system": platform.platform(),
        "nvcc": ask("nvcc", "--version"),
        "torch": ask(sys.executable, "-c", "import torch; print(torch.__version__)"),
    }
    if gpu_name() is None:
        raise Failed("no GPU: " + found["gpu"])
    return found


def tests(options):
    """Every test of the device, program by program."""
    result = {}
    for program in TEST_PROGRAMS:
        with tempfile.TemporaryDirectory() as folder:
            report = pathlib.Path(folder) / "report.json"
            done = run([options.bin / program, f"--gtest_output=json:{report}"], 240)
            if not report.exists():
                raise Failed(f"{program} ended with code {done.returncode}: {last_line(done.stderr)}")
            outcome = json.loads(report.read_text())
        each = [test for suite in outcome["testsuites"] for test in suite["testsuite"]]
        failures = {f"{test['classname']}.{test['name']}": test["failures"][0]["failure"].splitlines()[:6]
                    for test in each if "failures" in test}
        skipped = [f"{test['classname']}.{test['name']}" for test in each if test.get("result") == "SKIPPED"]
        result[program] = {"tests": len(each), "failed": failures, "skipped": skipped}
    if any(program["failed"] for program in result.values()):
        raise Failed(json.dumps({name: program["failed"] for name, program in result.items() if program["failed"]}))
    if all(program["skipped"] for program in result.values()):
        raise Failed("every program skips tests: " + gpu_less(options))
    return result


def gpu_less(options):
    return last_line(run([options.bin / "convoy-train", "--dataset", "shapes", "--device", "cuda", "--dry-run"], 60).stderr)


def sanitizer(options):
    """compute-sanitizer over a subset of the tests."""
    result = {}
    for tool, program, chosen in SANITIZED:
        done = run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", options.bin / program,
                    f"--gtest_filter={chosen}"], 150)
        summary = [line for line in done.stdout.splitlines() if "SUMMARY" in line]
        result[f"{tool} {program} {chosen}"] = summary[-1] if summary else last_line(done.stdout)
        if not re.search(r"Running [1-9]\d* tests?", done.stdout):
            raise Failed(f"{tool} {program}: no test is called {chosen}: {last_line(done.stdout)}")
        if done.returncode != 0:
            raise Failed(f"{tool} {program}: code {done.returncode}, {result[f'{tool} {program} {chosen}']}")
    return result


def bandwidth(options):
    """Each kernel's bytes a second beside a copy's: the median of five."""
    done = run([options.bin / "convoy-bench-kernels", "--device", "cuda", "--benchmark_repetitions=5",
                "--benchmark_min_time=0.02", "--benchmark_report_aggregates_only=true", "--benchmark_format=json"], 240)
    if done.returncode != 0:
        raise Failed(last_line(done.stderr))
    found = json.loads(done.stdout)
    rows = {row["run_name"].split("/")[0]: {"GB/s": row["GB/s"], "of_copy": row["of_copy"]}
            for row in found["benchmarks"] if row["aggregate_name"] == "median"}
    for name, row in rows.items():
        row["goal"] = next(goal for prefix, goal in GOALS if name.startswith(prefix))
    return {"copy_GB/s": found["context"]["copy_GB/s"], "kernels": rows}


def losses(options, folder, device, *flags):
    out = pathlib.Path(folder) / device
    done = run([options.bin / "convoy-train", "--dataset", "shapes", "--device", device, "--out", out, "--log-every", "1",
                *flags], 240)
    if done.returncode != 0:
        raise Failed(f"convoy-train --device {device}: code {done.returncode}, {last_line(done.stderr)}")
    log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    return [line["loss"] for line in log if line["event"] == "step"], log[-1]


def training(options):
    """Whole training runs on the CPU and on the GPU."""
    result = {}
    # Without batch norm single precision stays together; with it only double does.
    for name, tolerance, flags in (("lenet fp32", 1e-5, ["--model", "lenet", "--max-steps", "20", "--batch-size", "32"]),
                                   ("resnet20 fp64", 1e-9, ["--model", "resnet20", "--max-steps", "3", "--batch-size", "8",
                                                            "--precision", "fp64"])):
        with tempfile.TemporaryDirectory() as folder:
            cpu, _ = losses(options, folder, "cpu", *flags)
            gpu, last = losses(options, folder, "cuda", *flags)
        worst = max(abs(a - b) / abs(b) for a, b in zip(gpu, cpu))
        result[name] = {"steps": len(gpu), "worst_relative_difference": worst, "tolerance": tolerance,
                        "images_per_second": last["images_per_second"]}
        if len(gpu) != len(cpu) or not worst <= tolerance:
            raise Failed(f"{name}: losses differ by {worst:.1e}, at most {tolerance:.0e} expected")
    return result


STAGES = (environment, tests, sanitizer, training, bandwidth)


def table(results):
    lines = [f"# {results['gpu']}", "", f"`scripts/validate_gpu.sh`, {results['date']}, version {results['version']}.", "",
             "| stage | outcome | seconds |", "|---|---|---|"]
    for stage, entry in results["stages"].items():
        outcome = "passed" if entry["passed"] else "failed: " + re.sub(r"\s+", " ", entry["problem"])[:300].replace("|", "\\|")
        lines.append(f"| {stage} | {outcome} | {entry['seconds']:.0f} |")
    found = results["stages"].get("environment", {}).get("found")
    if found:
        lines += ["", "| machine | |", "|---|---|"] + [f"| {key} | {value} |" for key, value in found.items()]
    found = results["stages"].get("tests", {}).get("found")
    if found:
        lines += ["", "| tests on the device | run | skipped |", "|---|---|---|"]
        lines += [f"| {name} | {entry['tests']} | {len(entry['skipped'])} |" for name, entry in found.items()]
    found = results["stages"].get("training", {}).get("found")
    if found:
        lines += ["", "| training, CPU beside GPU | steps | losses differ by at most | allowed |", "|---|---|---|---|"]
        lines += [f"| {name} | {entry['steps']} | {entry['worst_relative_difference']:.1e} | {entry['tolerance']:.0e} |"
                  for name, entry in found.items()]
    found = results["stages"].get("bandwidth", {}).get("found")
    if found:
        lines += ["", f"A copy moves {found['copy_GB/s']} GB/s (bytes read and written).", "",
                  "| kernel | GB/s | of the copy | goal |", "|---|---|---|---|"]
        lines += [f"| {name} | {row['GB/s']:.0f} | {row['of_copy']:.2f} | {row['goal']:.2f} |"
                  for name, row in found["kernels"].items()]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [stage.__name__ for stage in STAGES]
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda", help="default: build/cuda")
    parser.add_argument("--out", type=pathlib.Path, help="default: bench/results/<gpu>")
    parser.add_argument("--stages", default=",".join(names), help="a comma list of " + ", ".join(names))
    parser.add_argument("--again", action="store_true", help="also stages that have passed before")
    options = parser.parse_args()
    options.bin = options.build / "bin"
    chosen = options.stages.split(",")
    for name in chosen:
        if name not in names:
            parser.error(f"--stages: found '{name}', expected {', '.join(names)}")
    if not (options.bin / "convoy-train").exists():
        parser.error(f"--build: no programs in {options.bin}; cmake --preset cuda && cmake --build build/cuda")

    name = gpu_name() or "no GPU"
    out = options.out or ROOT / "bench" / "results" / re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    out.mkdir(parents=True, exist_ok=True)
    file = out / "validation.json"
    results = json.loads(file.read_text()) if file.exists() else {"stages": {}}
    results["gpu"] = name
    results["date"] = datetime.date.today().isoformat()
    results["version"] = last_line(run([options.bin / "convoy-train", "--version"], 60).stdout)

    for stage in STAGES:
        before = results["stages"].get(stage.__name__)
        if stage.__name__ not in chosen or (before and before["passed"] and not options.again):
            continue
        begin = time.monotonic()
        entry = {"passed": True}
        try:
            entry["found"] = stage(options)
        except Failed as problem:
            entry.update(passed=False, problem=str(problem))
        entry["seconds"] = time.monotonic() - begin
        results["stages"][stage.__name__] = entry
        file.write_text(json.dumps(results, indent=1) + "\n")  # after each: a run that is cut short has what it found
        (out / "validation.md").write_text(table(results))
        print(f"{stage.__name__}: {'passed' if entry['passed'] else 'failed: ' + entry['problem']}, {entry['seconds']:.0f} s",
              flush=True)
    print(f"{file}\n{out / 'validation.md'}")
    return 0 if all(results["stages"].get(name, {}).get("passed") for name in chosen) else 1


if __name__ == "__main__":
    sys.exit(main())
