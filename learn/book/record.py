#!/usr/bin/env python3
"""Runs the programs of the book with cuemu.

    python3 learn/book/record.py            writes data/counts.json and the output of the console blocks
    python3 learn/book/record.py --verify   compares instead; exit code 1 if anything differs

Needs g++, and cuemu on the path or in emulator/bin. Counts do not depend on the machine.
"""
import functools
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

BOOK = pathlib.Path(__file__).resolve().parent
COUNTS = BOOK / "data" / "counts.json"
RUNS = ["saxpy.cu", "grid_stride.cu", "add_bias.cu", *(f"stride.cu {stride}" for stride in (1, 2, 3, 4, 8, 32)),
        "transpose.cu", "sum.cu", "moments.cu", "gemm.cu", "tensor_cores.cu", "fusion.cu"]
PROGRAMS = ["training.cpp", "tensor.cpp", "pipeline.cpp", "graph.cpp", "saved.cpp", "formats.cpp", "convolution.cpp",
            "moments.cpp", "allreduce.cpp", "overlap.cpp", "norms.cpp", "zero.cpp", "determinism.cpp",
            "failures.cpp", "launches.cpp", "timing.cpp"]  # plain C++, which print JSON
KINDS = ("global_loads", "global_stores", "shared_loads", "shared_stores")
CONSOLE = re.compile(r"(^```console\n)(.*?)(^```$)", re.S | re.M)


@functools.cache
def run(command):
    """Runs a command of the book in the directory of its program, once. Returns its output."""
    path = f"{BOOK.parents[1] / 'emulator' / 'bin'}:{os.environ['PATH']}"
    if shutil.which("cuemu", path=path) is None:
        sys.exit("record.py: found no cuemu on the path, and no emulator/bin/cuemu")
    source = re.search(r"(?<!\S)\w+\.(?:cu|cpp)(?!\S)", command)  # the commands are those of the directory of their program
    directory = next((BOOK / "programs").glob(f"*/{source[0]}")).parent if source else BOOK
    done = subprocess.run(["bash", "-c", command], cwd=directory, env={**os.environ, "PATH": path},
                          capture_output=True, text=True)
    return done.stdout.replace("cuemu: compiling the emulator, once\n", "") + done.stderr


def of_site(site):
    """Returns the counts of a kernel or a line that are not 0, with the average number of lanes."""
    return {kind: {**site[kind], "lanes_per_request": round(site[kind]["lanes"] / site[kind]["requests"], 1)}
            for kind in KINDS if site[kind]["requests"]}


def add(into, counts):
    for kind in KINDS:
        for unit, count in counts[kind].items():
            into.setdefault(kind, {}).setdefault(unit, 0)
            into[kind][unit] += count


def of_launch(launch):
    lines = {}
    for site in launch["sites"]:
        add(lines.setdefault(site["place"].rpartition(":")[2], {}), site)
    return {"blocks": launch["grid"][0] * launch["grid"][1], "threads": launch["block"][0] * launch["block"][1],
            "shared_bytes": launch["shared_bytes"], "barriers": launch["barriers"], **of_site(launch),
            "lines": {line: of_site(counts) for line, counts in sorted(lines.items(), key=lambda each: int(each[0]))}}


def counts():
    result = {"command": "python3 learn/book/record.py", "machine": "any: the counts do not depend on it"}
    with tempfile.TemporaryDirectory() as work:
        report = pathlib.Path(work) / "report.jsonl"
        for each in RUNS:
            file, _, words = each.partition(" ")
            run(f"cuemu compile --count -o {work}/{file}.program {file}")
            report.unlink(missing_ok=True)
            output = run(f"CUEMU_COUNT=1 CUEMU_REPORT={report} {work}/{file}.program {words}")
            launches = [json.loads(line)["launch"] for line in report.read_text().splitlines() if '"launch"' in line]
            if not launches:
                sys.exit(f"record.py: cuemu count {each} reported no launch:\n{output}")
            result[each] = {launch["kernel"]: of_launch(launch) for launch in launches}
        result["mutants.cu"] = mutants(work)
        for each in PROGRAMS:
            build, program = builds().get(each) or (f"g++ -std=c++20 -O1 -pthread -o {work}/{each}.program {each}", f"{work}/{each}.program")
            run(build)
            result[each] = json.loads(run(f"{program} --json"))
    return result


def mutants(work):
    """Returns which tests find each mutant of mutants.cu, and the codes that the checks of accesses find in it."""
    run(f"cuemu compile --count -o {work}/mutants mutants.cu")
    found = json.loads(run(f"{work}/mutants --json"))
    return {name: {"tests": tests, "check": sorted(set(re.findall(r"CE\d{3}", run(f"CUEMU_CHECK=1 {work}/mutants {i}"))))}
            for i, (name, tests) in enumerate(found.items())}


def builds():
    """Returns the commands of the chapters that compile and run a C++ program, and the path of the program, by its source."""
    commands = [command for chapter in sorted(BOOK.glob("*.md")) for _, block, _ in CONSOLE.findall(chapter.read_text(encoding="utf-8"))
                for command, _ in sessions(block)]
    found = [re.match(r"g\+\+ .* -o (\S+) (\S+\.cpp) && \1\b", command) for command in commands]
    return {match[2]: (match.string, match[1]) for match in found if match}


def is_equal(expected, actual):
    """Whether the lines are equal; a line … stands for any lines."""
    pattern = "".join(r"(?:[^\n]*\n)*?" if line == "…" else re.escape(line + "\n")
                      for line in expected.splitlines())
    return re.fullmatch(pattern, "".join(line.rstrip() + "\n" for line in actual.splitlines())) is not None


def sessions(block):
    """Returns the (command, output) pairs of a console block."""
    parts = re.split(r"^\$ (.*)\n", block, flags=re.M)
    return list(zip(parts[1::2], parts[2::2]))


def with_output(block):
    """Returns a console block with the output of its commands. Keeps a first line …, which omits lines before a blank."""
    text = ""
    for command, expected in sessions(block):
        actual = run(command)
        if not is_equal(expected, actual):
            print(f"$ {command}\nexpected:\n{expected}found:\n{actual}")
            if expected.startswith("…\n"):
                actual = "…\n" + actual[actual.find("\n\n") + 2:]
            expected = "".join(line.rstrip() + "\n" for line in actual.splitlines())
        text += f"$ {command}\n{expected}"
    return text


def main(arguments):
    if arguments not in ([], ["--verify"]):
        sys.exit(f"record.py: found {' '.join(arguments)}, expected no argument or --verify")
    is_verified = arguments == ["--verify"]
    texts = {COUNTS: json.dumps(counts(), indent=1) + "\n"}
    chapters = sorted(BOOK.glob("*.md"))
    for _, block, _ in (found for chapter in chapters for found in CONSOLE.findall(chapter.read_text(encoding="utf-8"))):
        for command, _ in sessions(block):
            run(command)
    for chapter in chapters:
        texts[chapter] = CONSOLE.sub(lambda match: match[1] + with_output(match[2]) + match[3], chapter.read_text(encoding="utf-8"))
    different = [path for path, text in texts.items() if not path.exists() or path.read_text(encoding="utf-8") != text]
    for path in different:
        print(f"{path.relative_to(BOOK)} {'differs from what the programs do' if is_verified else 'written'}")
        if not is_verified:
            path.write_text(texts[path], encoding="utf-8")
    return 1 if is_verified and different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
