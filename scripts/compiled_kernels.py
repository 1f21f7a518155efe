#!/usr/bin/env python3
"""Checks the compiled code of each CUDA kernel: widths of accesses, registers, occupancy, local memory, f64.

scripts/compiled_kernels.py [--build build/cuda] [--write [--launches build/test/kernel_log]]

Reads the PTX in the objects of a build by `scripts/test.sh cuda`, translates it with ptxas for sm_80, sm_90, sm_100 and
sm_120, and compares the result with bench/results/compiled: with the design of each kernel (design.csv) and, if there is a
table of the same release of nvcc, with that table. --write writes the table. bench/results/compiled/README.md explains
both files. Exit codes: 0 if all is as designed, 1 if not (each difference is printed), 77 if the build has no PTX.
"""

import argparse
import collections
import concurrent.futures
import csv
import fnmatch
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "cuda_emulator" / "tests"))
sys.dont_write_bytecode = True
import coverage  # noqa: E402  reads the emulator's log of launches

TABLES = ROOT / "bench" / "results" / "compiled"
SKIPPED = 77
# The PTX of which GPU is translated for which. For a GPU newer than those of the build, the driver translates the PTX.
PTX_OF = {80: 80, 90: 90, 100: 90, 120: 90}
TABLED = (80, 90, 100)  # in the table; the design alone is compared with sm_120, whose registers are those of sm_100
SHARED_BYTES = {80: 164 << 10, 90: 228 << 10, 100: 228 << 10, 120: 100 << 10}  # of one SM
SM_WARPS = {80: 64, 90: 64, 100: 64, 120: 48}
SM_REGISTERS, SM_BLOCKS, SM_PARTITIONS = 65536, 32, 4
REGISTER_TOLERANCE = 4  # per thread
MIN_OCCUPANCY = 50  # percent, unless the design says otherwise

HOPPER = "90a"  # code for Hopper alone: the target of kernels with wgmma, and of no other ones
IMAGE = re.compile(rb"\.version \d+\.\d+\s+\.target sm_(\d+a?)[^\0]*")
RELEASE = re.compile(rb"Cuda compilation tools, release (\d+\.\d+)")
# A kernel ends where the next function begins: blocks within it may have a brace at the beginning of a line.
ENTRY = re.compile(r"\.entry (\w+)\((.*?)(?=^(?:\.\w+ )?\.(?:entry|func)|\Z)", re.DOTALL | re.MULTILINE)
GLOBAL = re.compile(r"\b(ld|st)\.(?:volatile\.|relaxed\.\w+\.)?global[\w.:]*?(?:\.v(\d))?\.[a-z]+(\d+)\s")
F64 = re.compile(r"^\s*(?:@!?%p\d+\s+)?(?!mov|ld|st|selp)[a-z][\w.]*\.f64", re.MULTILINE)
# Instructions that no kernel of this project has.
UNWANTED = {
    "accesses of an unknown address space": re.compile(r"\b(?:ld|st)\.(?:v\d\.)?[busf]\d+\s"),
    "atomic operations on floating-point numbers": re.compile(r"\b(?:atom|red)\.[\w.]*\.(?:f|bf)\d+"),
}
# Instructions that a kernel has if, and only if, its design says that it uses tensor cores.
TENSOR_CORES = {
    "tensor-core instructions": re.compile(r"\b(?:mma|wmma|wgmma|tcgen05)\."),
    "loads of matrices": re.compile(r"\bldmatrix\."),
    "asynchronous copies": re.compile(r"\bcp\.async\.cg\."),
}
SIZES = {"double": 8, "float": 4, "float16": 2, "bfloat16": 2, "int": 4, "unsigned int": 4, "unsigned char": 1,
         "unsigned short": 2, "unsigned long": 8}


def short_name(demangled):
    """Removes the result, the parameters and the namespaces of a demangled kernel."""
    name = re.sub(r"convoy::|kernels::|cuda::|\(anonymous namespace\)::|_GLOBAL__N__\w+?::", "", demangled)
    return re.sub(r"\((?:[^()]|\([^()]*\))*\)$", "", name.removeprefix("void ")).replace(" >", ">")


def arguments_of(name):
    """Returns the template arguments of a kernel, without splitting nested ones."""
    arguments, depth = [""], 0
    for letter in name.partition("<")[2][:-1]:
        depth += {"<": 1, ">": -1}.get(letter, 0)
        if letter == "," and depth == 0:
            arguments.append("")
        else:
            arguments[-1] += letter
    return [argument.strip() for argument in arguments]


def read_ptx(text):
    """Returns {mangled kernel: what its PTX contains}."""
    kernels = {}
    for match in ENTRY.finditer(text):
        body = match[2]
        widths = {"ld": collections.Counter(), "st": collections.Counter()}
        for direction, vector, bits in GLOBAL.findall(body):
            widths[direction][int(vector or 1) * int(bits) // 8] += 1
        block = re.search(r"\.maxntid (\d+)", body)
        kernels[match[1]] = {"threads": int(block[1]) if block else 1, "loads": widths["ld"], "stores": widths["st"],
                             "f64": len(F64.findall(body)),
                             "unwanted": [what for what, pattern in UNWANTED.items() if pattern.search(body)],
                             "warpgroups": re.search(r"\bwgmma\.", body) is not None,
                           "tensor cores": [what for what, pattern in TENSOR_CORES.items() if pattern.search(body)]}
    return kernels


def read_report(text):
    """Returns {mangled kernel: (registers, bytes of local memory, bytes of static shared memory)} of `ptxas -v`."""
    kernels = {}
    for part in text.split("Compiling entry function '")[1:]:
        name = part.partition("'")[0]
        # A function that the kernel calls is listed as well, with the properties of its own.
        own = re.search(rf"Function properties for {name}\n\s*(\d+) bytes stack frame", part)
        shared = re.search(r"(\d+) bytes smem", part)
        kernels[name] = (int(re.search(r"Used (\d+) registers", part)[1]), int(own[1]), int(shared[1]) if shared else 0)
    return kernels


def occupancy(architecture, threads, registers, shared):
    """Returns the percentage of an SM's warps that can be resident at once."""
    warps = -(-threads // 32)
    of_warp = -(-registers * 32 // 256) * 256  # registers are allocated to warps in units of 256
    by_registers = SM_REGISTERS // SM_PARTITIONS // of_warp * SM_PARTITIONS // warps
    by_shared = SHARED_BYTES[architecture] // (-(-shared // 128) * 128 + 1024)  # the system takes 1 KiB per block
    of_sm = SM_WARPS[architecture]
    return 100 * min(by_registers, by_shared, of_sm // warps, SM_BLOCKS) * warps // of_sm


def ptxas(architecture, ptx):
    """Returns ptxas's report, or None if it does not know the architecture."""
    program = shutil.which("ptxas") or os.path.join(os.environ.get("CUDA_HOME", "/usr/local/cuda"), "bin", "ptxas")
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(ptx)
        file.flush()
        run = subprocess.run([program, "-v", f"-arch=sm_{architecture}", "-o", os.devnull, file.name],
                             capture_output=True, text=True)
    if "is not defined for option 'gpu-name'" in run.stderr:
        return None
    if run.returncode != 0:
        sys.exit(f"ptxas for sm_{architecture} failed:\n{run.stderr}")
    return run.stderr


def ptx_images(binary):
    """Returns {architecture: PTX} of an object file whose device code is not compressed. The keys are 80, 90, "90a"."""
    images = {}
    for match in IMAGE.finditer(binary):
        target = match[1].decode()
        images[int(target) if target.isdigit() else target] = match[0].decode().rstrip() + "\n"
    return images


def kernels_of(source, images):
    """Returns {(source, short name): kernel} of one source, given its PTX by architecture."""
    read = {architecture: read_ptx(ptx) for architecture, ptx in images.items()}
    mangled = list(read[90])
    names = subprocess.run(["c++filt"], input="\n".join(mangled), capture_output=True, text=True,
                           check=True).stdout.splitlines()
    kernels = {symbol: read[90][symbol] | {"compiled": {}} for symbol in mangled}
    # Kernels with wgmma. Elsewhere they end with an error.
    hopper = {symbol for symbol, kernel in read.get(HOPPER, {}).items() if kernel["warpgroups"]}
    if hopper:
        report = ptxas(HOPPER, images[HOPPER])
        if "Potential Performance Loss" in report:
            sys.exit(f"{source}: ptxas for sm_{HOPPER} does not let wgmma run asynchronously:\n{report}")
        compiled = read_report(report)
        for symbol in hopper:
            kernels[symbol] = read[HOPPER][symbol] | {"compiled": {90: compiled[symbol]}}
    for architecture, origin in PTX_OF.items():
        report = ptxas(architecture, images[origin]) if origin in images else None
        for symbol, compiled in read_report(report or "").items():
            if symbol in hopper:
                continue
            kernels[symbol]["compiled"][architecture] = compiled
            for what in ("loads", "stores", "f64"):
                if read[origin][symbol][what] != kernels[symbol][what]:
                    kernels[symbol]["unwanted"].append(f"{what} in the PTX for sm_{origin} that differ from sm_90's,")
    return {(source, short_name(name)): kernels[symbol] for symbol, name in zip(mangled, names)}


def designed_width(rule, name):
    """Returns the bytes that the widest access has by design, and 0 where no width is required."""
    arguments = arguments_of(name)
    if rule == "element" or "1" in arguments:  # a width of 1: the variant for sizes that are no multiple of a pack
        return 0
    types = [SIZES[argument] for argument in arguments if argument in SIZES]
    if rule in ("tile load", "tile store"):  # MapTile: arguments are the function, the output, the inputs
        output, *inputs = types
        elements = min(16 // size for size in types)
        return elements * (output if rule == "tile store" else max(inputs, default=0))
    if rule == "pack":
        return types[0] * next(int(argument) for argument in arguments if argument.isdigit())
    if rule.endswith(" elements"):
        return min(16, types[-1] * int(rule.split()[0]))
    return int(rule)


def design_of(design, source, name):
    for row in design:
        if fnmatch.fnmatchcase(source, row["source"]) and fnmatch.fnmatchcase(name, row["kernel"]):
            return row
    return None


def violations(kernel, source, name, design, shared):
    """Yields one sentence per difference between a kernel and its design."""
    row = design_of(design, source, name)
    if row is None:
        yield "has no row in design.csv"
        return
    for what in ("loads", "stores"):
        rule, widest = row[what], max(kernel[what], default=0)
        expected = designed_width(f"tile {what[:-1]}" if rule == "tile" else rule, name)
        if widest < expected:
            yield f"the widest of its global {what} has {widest} B, by design {expected} B"
    if kernel["f64"] > 0 and row["f64"] != "yes" and "double" not in name:
        yield f"has {kernel['f64']} f64 instructions, by design none"
    for what in kernel["unwanted"]:
        yield f"has {what} by design none"
    uses_tensor_cores = row.get("tensor cores") == "yes"
    for what in TENSOR_CORES:
        if (what in kernel["tensor cores"]) != uses_tensor_cores:
            yield f"has no {what}, by design some" if uses_tensor_cores else f"has {what} by design none"
    for architecture, (registers, local, static) in kernel["compiled"].items():
        if local > int(row["local"] or 0):
            yield f"uses {local} B of local memory on sm_{architecture}, by design at most {row['local'] or 0} B"
        if kernel["threads"] > 1:
            percent = occupancy(architecture, kernel["threads"], registers, static + shared)
            minimum = int(row["occupancy"] or MIN_OCCUPANCY)
            if percent < minimum:
                yield (f"{registers} registers allow an occupancy of {percent} % on sm_{architecture}, "
                       f"by design at least {minimum} %")


def format_widths(widths):
    return " ".join(f"{width}x{count}" for width, count in sorted(widths.items(), reverse=True))


def widths_of(text):
    return {part.partition("x")[0] for part in text.split()}


def table_row(key, kernel, shared):
    row = dict(zip(("source", "kernel"), key), threads=kernel["threads"], shared=shared,
               loads=format_widths(kernel["loads"]), stores=format_widths(kernel["stores"]), f64=kernel["f64"])
    for architecture in TABLED:
        registers, local, static = kernel["compiled"].get(architecture, (0, 0, 0))
        percent = ""
        if kernel["threads"] > 1 and registers > 0:
            percent = occupancy(architecture, kernel["threads"], registers, static + shared)
        row |= {f"registers {architecture}": registers, f"local {architecture}": local,
                f"occupancy {architecture}": percent}
    return row


def changes(row, before):
    """Yields one sentence per difference from the committed row that is a regression or makes the table wrong."""
    for what in ("loads", "stores"):
        if widths_of(row[what]) != widths_of(before[what]):
            yield f"global {what} were '{before[what]}' (bytes x instructions), are '{row[what]}'"
    if int(row["f64"]) > int(before["f64"]):
        yield f"f64 instructions were {before['f64']}, are {row['f64']}"
    for architecture in TABLED:
        was, now = (int(r[f"registers {architecture}"]) for r in (before, row))
        if now == 0:  # not covered
            continue
        if abs(was - now) > REGISTER_TOLERANCE:
            yield f"registers on sm_{architecture} were {was}, are {now}"
        was, now = (int(r[f"local {architecture}"]) for r in (before, row))
        if now > was:
            yield f"local memory on sm_{architecture} was {was} B, is {now} B"
        was, now = (int(r[f"occupancy {architecture}"] or 0) for r in (before, row))
        if now < was:
            yield f"occupancy on sm_{architecture} was {was} %, is {now} %"


def check(kernels, design, table):
    """Returns all differences from the design and, if `table` is not None, from the committed table."""
    found = []
    for key, kernel in sorted(kernels.items()):
        before = (table or {}).get(key)
        shared = int(before["shared"]) if before else 0
        messages = list(violations(kernel, *key, design, shared))
        if table is not None:
            messages += list(changes(table_row(key, kernel, shared), before)) if before else ["is not in the table"]
        found += [f"{key[0]}: {key[1]}: {message}" for message in messages]
    return found + [f"{source}: {name}: is in the table, but no longer in the build"
                    for source, name in sorted(set(table or {}) - set(kernels))]


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build" / "cuda",
                        help="build directory of scripts/test.sh cuda (default: build/cuda)")
    parser.add_argument("--write", action="store_true", help="write the table of this release of nvcc")
    parser.add_argument("--launches", type=pathlib.Path, default=ROOT / "build" / "test" / "kernel_log",
                        help="launch log of the tests under the emulator, for --write (default: that of build/test)")
    options = parser.parse_args(arguments)

    objects = {path.name.removesuffix(".o"): path.read_bytes()
               for path in sorted(options.build.glob("kernels/CMakeFiles/convoy_kernels.dir/cuda/**/*.cu.o"))}
    sources = {name: ptx_images(binary) for name, binary in objects.items()}
    if not sources or any(90 not in images for images in sources.values()):
        print(f"skipped: {options.build} has no objects with uncompressed PTX for sm_90; run scripts/test.sh cuda")
        return SKIPPED
    release = RELEASE.search(next(iter(objects.values())))[1].decode()
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        kernels = {}
        for found in pool.map(kernels_of, sources, sources.values()):
            kernels |= found
    for architecture in PTX_OF:
        if not any(architecture in kernel["compiled"] for kernel in kernels.values()):
            print(f"not covered: sm_{architecture}, which this build or its ptxas does not have")

    path = TABLES / f"nvcc-{release}.csv"
    if options.write:
        launches = {short_name(name): shape for name, shape in coverage.launched_kernels(options.launches).items()}
        missing = {name for (_, name), kernel in kernels.items() if kernel["threads"] > 1} - set(launches)
        if missing:
            sys.exit(f"{options.launches} has no launch of: {', '.join(sorted(missing))}")
        with path.open("w", newline="") as file:
            rows = [table_row(key, kernel, launches.get(key[1], (1, 0))[1]) for key, kernel in sorted(kernels.items())]
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        print(f"wrote {len(rows)} kernels to {path.relative_to(ROOT)}")
    table = {(row["source"], row["kernel"]): row for row in rows_of(path)} if path.exists() else None
    if table is None:
        print(f"no table of nvcc {release}: compared with the design alone")
    found = check(kernels, rows_of(TABLES / "design.csv"), table)
    print("\n".join(found + [f"{len(kernels)} kernels, {len(found)} differences"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
