#!/usr/bin/env python3
"""Lists the resources of each CUDA kernel: registers per thread, spilled bytes, stack, shared memory.

scripts/kernel_resources.py [--build build/cuda] [--arch sm_90] [--launches build/debug/kernel_log] [--all]

Compiles each .cu file once more, like the build, with `-Xptxas -v`. Without --all there is one row per kernel template,
with the maximum over its instances. Shared memory is requested at the launch and unknown to ptxas, so the table has
the maximum that a test requested under the emulator, which logs its launches.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cuda_emulator" / "tests"))
sys.dont_write_bytecode = True
import coverage  # noqa: E402  reads the emulator's log of launches

ENTRY = re.compile(r"Compiling entry function '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")

MEASURES = ("registers", "spilled", "stack", "threads", "shared")


def report_command(entry, arch):
    """Returns the build's command for one source, changed to one architecture, ptxas's report and no object file."""
    words = shlex.split(entry["command"])
    nvcc = next(i for i, word in enumerate(words) if os.path.basename(word) == "nvcc")
    kept, skip = [], False
    for word in words[nvcc:]:
        if skip:
            skip = False
        elif word in ("-o", "-MF", "-MT"):
            skip = True
        elif word in ("-c", "-MD", "-dc") or word.startswith(("--generate-code", "-gencode", "-arch")):
            pass
        else:
            kept.append(word)
    return kept + ["-cubin", f"-arch={arch}", "-Xptxas", "-v", "-o", os.devnull]


def kernels_of(entry, arch):
    run = subprocess.run(report_command(entry, arch), cwd=entry["directory"], capture_output=True, text=True)
    if run.returncode != 0:
        sys.exit(f"{entry['file']} does not compile:\n{run.stderr}")
    kernels = []
    for line in run.stderr.splitlines():
        if match := ENTRY.search(line):
            kernels.append({"symbol": match[1], "registers": 0, "spilled": 0, "stack": 0})
        elif kernels and (match := SPILLS.search(line)):
            kernels[-1].update(stack=int(match[1]), spilled=int(match[2]) + int(match[3]))
        elif kernels and (match := USED.search(line)):
            kernels[-1]["registers"] = int(match[1])
    names = subprocess.run(["c++filt"], input="\n".join(k["symbol"] for k in kernels), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    for kernel, name in zip(kernels, names):
        kernel["source"] = os.path.basename(entry["file"])
        kernel["demangled"] = coverage.without_conditionals(name)
        kernel["name"] = tidy(name)
    return kernels


def tidy(name):
    name = re.sub(r"_GLOBAL__N__\w+|\(anonymous namespace\)", "", name)
    name = name.replace("convoy::cuda::", "").replace("convoy::", "").replace("::::", "::")
    return re.sub(r"\((?:[^()]|\([^()]*\))*\)$", "", name.removeprefix("void ")).replace("<::", "<").replace(" ::", " ").lstrip(":")


def template_of(name):
    return name.split("<")[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", default="build/cuda",
                        help="build directory of the cuda preset (default: %(default)s)")
    parser.add_argument("--arch", default="sm_90", help="architecture (default: %(default)s)")
    parser.add_argument("--launches", type=pathlib.Path, default=ROOT / "build" / "debug" / "kernel_log",
                        help="launch log of the tests under the emulator (default: that of build/debug)")
    parser.add_argument("--all", action="store_true", help="one row per instance of each template")
    arguments = parser.parse_args()

    commands = pathlib.Path(arguments.build) / "compile_commands.json"
    if not commands.exists():
        sys.exit(f"{commands} does not exist; configure with cmake --preset cuda first")
    entries = [entry for entry in json.loads(commands.read_text()) if entry["file"].endswith(".cu")]
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = [kernel for found in pool.map(lambda entry: kernels_of(entry, arguments.arch), entries) for kernel in found]

    launches = {coverage.without_conditionals(name): shape
                for name, shape in coverage.launched_kernels(arguments.launches).items()}
    rows = {}
    for kernel in kernels:
        key = (kernel["source"], kernel["name"] if arguments.all else template_of(kernel["name"]))
        row = rows.setdefault(key, {"instances": 0, **dict.fromkeys(MEASURES, 0)})
        row["instances"] += 1
        kernel["threads"], kernel["shared"] = launches.get(kernel["demangled"], (0, 0))
        for what in MEASURES:
            row[what] = max(row[what], kernel[what])
    print(f"{arguments.arch}\n\n| source | kernel | instances | registers | spilled bytes | stack bytes "
          "| threads per block | shared bytes |\n|---|---|---|---|---|---|---|---|")
    for (source, name), row in sorted(rows.items()):
        launch = f"{row['threads']} | {row['shared']}" if row["threads"] > 0 else "not launched |"
        print(f"| {source} | {name} | {row['instances']} | {row['registers']} | {row['spilled']} | {row['stack']} | {launch} |")

    spilling = [kernel for kernel in kernels if kernel["spilled"] > 0]
    print(f"\n{len(kernels)} kernels, {len(spilling)} of them spill registers")
    for kernel in spilling:
        print(f"  {kernel['source']}: {kernel['name']}: {kernel['spilled']} bytes")


if __name__ == "__main__":
    main()
