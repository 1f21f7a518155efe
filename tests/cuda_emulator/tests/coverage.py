#!/usr/bin/env python3
"""Checks that the tests launched every kernel of the library.

Compares the __global__ functions of the library that nvcc built with those that emulator processes have logged
(CONVOY_EMULATOR_LOG). Exit codes: 0 if all were launched, 1 if some were not (their names are printed), 77 if there is
no library to compare with.
"""
import argparse
import pathlib
import re
import subprocess
import sys

SKIPPED = 77
STUB = "__device_stub_"  # prefix of nvcc's host stub of a kernel; the mangled name of the kernel follows


def kernels_in(symbols):
    """Returns the mangled kernel names in nm's output for an nvcc library.

    A stub may be inlined, but its static local variables remain, as _ZZL<length>__device_stub__Z…
    """
    kernels = set()
    for match in re.finditer(r"L(\d+)(?=" + STUB + ")", symbols):
        name = symbols[match.end():match.end() + int(match.group(1))]
        kernels.add(name[len(STUB):])
    return kernels


def without_conditionals(name):
    """Removes the arguments of std::conditional<…>, which nvcc and g++ mangle differently."""
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
    """Parses lines "program address threads bytes" into {program: {address: (max threads, max shared bytes)}}.

    Addresses are hexadecimal.
    """
    programs = {}
    for line in log_lines:
        program, address, threads, shared = line.rsplit(" ", 3)
        launches = programs.setdefault(program, {})
        maximum = launches.get(int(address, 16), (0, 0))
        launches[int(address, 16)] = (max(maximum[0], int(threads)), max(maximum[1], int(shared)))
    return programs


def named(launches, symbols):
    """Returns the launches of one program by demangled name, from the output of nm -C."""
    by_name = {}
    for line in symbols.splitlines():
        match = re.fullmatch(r"([0-9a-f]+) [tTwW] (.*)", line)
        if match and int(match.group(1), 16) in launches:
            by_name[match.group(2)] = launches[int(match.group(1), 16)]
    return by_name


def launched_kernels(log_directory):
    """Returns {demangled kernel: (max threads per block, max bytes of shared memory)} of all logged launches."""
    lines = [line for log in sorted(log_directory.glob("*.txt")) for line in log.read_text().splitlines()]
    kernels = {}
    for program, launches in launches_in(lines).items():
        for name, (threads, shared) in named(launches, run("nm", "-C", program)).items():
            maximum = kernels.get(name, (0, 0))
            kernels[name] = (max(maximum[0], threads), max(maximum[1], shared))
    return kernels


def missing(kernels, launched):
    seen = {without_conditionals(name) for name in launched}
    return sorted(name for name in kernels if without_conditionals(name) not in seen)


def run(*command, text=None):
    return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout


def newest(directory):
    return max(path.stat().st_mtime for path in directory.rglob("*") if path.suffix in (".cu", ".h"))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, required=True, help="build directory of the cuda preset")
    parser.add_argument("--log", type=pathlib.Path, required=True, help="directory of CONVOY_EMULATOR_LOG")
    parser.add_argument("--sources", type=pathlib.Path, required=True, help="directory of the library's sources")
    options = parser.parse_args(arguments)

    # Static or shared: what the build wrote last.
    libraries = sorted(options.build.glob("kernels/libconvoy_kernels.*"), key=lambda path: path.stat().st_mtime)
    if not libraries:
        print(f"skipped: no kernels/libconvoy_kernels.* in {options.build}; build the cuda preset (no GPU needed), or set CONVOY_NVCC_BUILD")
        return SKIPPED
    library = libraries[-1]
    if library.stat().st_mtime < newest(options.sources):
        print(f"skipped: {library} is older than {options.sources}; build the cuda preset again")
        return SKIPPED

    mangled = kernels_in(run("nm", str(library)))
    kernels = set(run("c++filt", text="\n".join(sorted(mangled))).splitlines())
    launched = launched_kernels(options.log)
    if not kernels:
        print(f"{library} contains no kernels; expected a library built by nvcc")
        return 1
    unseen = missing(kernels, launched)
    for name in unseen:
        print(f"never launched: {name}")
    print(f"{len(kernels) - len(unseen)} of {len(kernels)} kernels of {library} were launched")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
