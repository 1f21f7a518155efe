#!/usr/bin/env python3
"""Was every kernel of the library launched by some test?

Compares the __global__ functions of the library that nvcc built with those that processes under the emulator have
logged (CONVOY_EMULATOR_LOG). Exit codes: 0 all were; 1 some were not, which are named; 77 nothing to compare with.
"""
import argparse
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
STUB = "__device_stub_"  # nvcc's host half of a kernel; the rest of its name is the kernel's mangled one


def kernels_in(symbols):
    """Mangled kernels from nm's listing of an nvcc library.

    A stub may be inlined away, but the local variables that it keeps are there, as _ZZL<length>__device_stub__Z…
    """
    kernels = set()
    for match in re.finditer(r"L(\d+)(?=" + STUB + ")", symbols):
        name = symbols[match.end():match.end() + int(match.group(1))]
        kernels.add(name[len(STUB):])
    return kernels


def without_conditionals(name):
    """std::conditional<…> without what stands in it, which nvcc and g++ mangle differently."""
    opening = "std::conditional<"
    result, at = "", 0
    while (begin := name.find(opening, at)) >= 0:
        end, depth = begin + len(opening), 1
        while depth > 0:
            depth += {"<": 1, ">": -1}.get(name[end], 0)
            end += 1
        result += name[at:begin] + opening + ">"
        at = end
    return result + name[at:]


def launches_in(log_lines):
    """{program: {address: (threads, shared bytes)}} from lines "program address threads bytes", the address in hexadecimal."""
    programs = {}
    for line in log_lines:
        program, address, threads, shared = line.rsplit(" ", 3)
        launches = programs.setdefault(program, {})
        most = launches.get(int(address, 16), (0, 0))
        launches[int(address, 16)] = (max(most[0], int(threads)), max(most[1], int(shared)))
    return programs


def named(launches, symbols):
    """The same by demangled function, from nm -C's listing of the program."""
    by_name = {}
    for line in symbols.splitlines():
        match = re.fullmatch(r"([0-9a-f]+) [tTwW] (.*)", line)
        if match and int(match.group(1), 16) in launches:
            by_name[match.group(2)] = launches[int(match.group(1), 16)]
    return by_name


def launched_kernels(log_folder):
    """{demangled kernel: the most threads of a block and bytes of shared memory that it was launched with}."""
    lines = [line for log in sorted(log_folder.glob("*.txt")) for line in log.read_text().splitlines()]
    kernels = {}
    for program, launches in launches_in(lines).items():
        for name, (threads, shared) in named(launches, run("nm", "-C", program)).items():
            most = kernels.get(name, (0, 0))
            kernels[name] = (max(most[0], threads), max(most[1], shared))
    return kernels


def missing(kernels, launched):
    seen = {without_conditionals(name) for name in launched}
    return sorted(name for name in kernels if without_conditionals(name) not in seen)


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def newest(folder):
    return max(path.stat().st_mtime for path in folder.rglob("*") if path.suffix in (".cu", ".h"))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--library", dest="archive", metavar="LIBRARY", type=pathlib.Path, required=True, help="libconvoy_kernels.a as nvcc built it")
    parser.add_argument("--log", type=pathlib.Path, required=True, help="the folder of CONVOY_EMULATOR_LOG")
    parser.add_argument("--sources", type=pathlib.Path, required=True, help="the folder of the library's sources")
    options = parser.parse_args(arguments)

    if not options.archive.exists():
        print(f"skipped: no {options.archive}; build the cuda preset (no GPU needed), or set CONVOY_NVCC_LIBRARY")
        return SKIPPED
    if options.archive.stat().st_mtime < newest(options.sources):
        print(f"skipped: {options.archive} is older than {options.sources}; build the cuda preset again")
        return SKIPPED

    mangled = kernels_in(run("nm", str(options.archive)))
    kernels = set(run("c++filt", text="\n".join(sorted(mangled))).splitlines())
    launched = launched_kernels(options.log)
    if not kernels:
        print(f"{options.archive} has no kernels: was it built by nvcc?")
        return 1
    unseen = missing(kernels, launched)
    for name in unseen:
        print(f"never launched: {name}")
    print(f"{len(kernels) - len(unseen)} of {len(kernels)} kernels of {options.archive} were launched")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
