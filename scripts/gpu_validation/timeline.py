"""Records when each kernel of a step begins and ends, and on which stream: idle time, overlap, and the longest kernels."""

import collections
import csv
import functools
import glob
import gzip
import io
import os
import pathlib
import tempfile

from gpu_validation.environment import need_device
from gpu_validation.work import Failed, NotHere, last_line

SOURCE = pathlib.Path(__file__).with_name("timeline.cpp")
STEPS = {
    "resnet18, batch 128, bf16": ("--model", "resnet18", "--batch-size", 128, "--precision", "bf16"),
    "speedrun, batch 2000, bf16": ("--model", "speedrun", "--batch-size", 2000, "--precision", "bf16"),
}
GAP_NS = 20_000  # between two replays of a graph, at least
LONGEST = 12  # kernels of the table


def last_replay(text):
    """Returns the kernels of the last replay of a graph in the table of timeline.cpp, by their begin."""
    rows = [{**row, "begin": int(row["begin_ns"]), "end": int(row["end_ns"])}
            for row in csv.DictReader(io.StringIO(text)) if row["graph"] != "0"]
    if not rows:
        raise Failed("the table has no kernel of a graph")
    rows.sort(key=lambda row: row["begin"])
    first, end = 0, rows[0]["end"]
    for i, row in enumerate(rows):
        if row["begin"] - end > GAP_NS:
            first = i
        end = max(end, row["end"])
    return rows[first:]


def summary(rows):
    """Returns the length of a replay, the time with no, one and several kernels, and the longest kernels, in us."""
    changes = sorted([(row["begin"], 1) for row in rows] + [(row["end"], -1) for row in rows])
    times, running, at = collections.Counter(), 0, changes[0][0]
    for when, change in changes:
        times[min(running, 2)] += when - at
        running, at = running + change, when
    by_kernel = collections.defaultdict(lambda: [0, 0.0])
    for row in rows:
        entry = by_kernel[row["kernel"].split("<")[0][-60:]]
        entry[0] += 1
        entry[1] += (row["end"] - row["begin"]) / 1e3
    longest = sorted(by_kernel.items(), key=lambda item: -item[1][1])[:LONGEST]
    return {"kernels": len(rows), "us": (changes[-1][0] - changes[0][0]) / 1e3, "idle_us": times[0] / 1e3,
            "one_us": times[1] / 1e3, "several_us": times[2] / 1e3, "streams": len({row["stream"] for row in rows}),
            "longest": {name: entry for name, entry in longest}}


def compile_library(work, directory):
    """Compiles timeline.cpp, and returns the library and the directory of CUPTI's own library."""
    roots = [path.rstrip("/") for path in ["/usr/local", *sorted(glob.glob("/usr/local/cuda*"), reverse=True)]]
    roots += [os.path.join(place, "*") for place in glob.glob("/usr/lib/python3*/site-packages/nvidia")]
    roots += [os.path.dirname(os.path.dirname(library)) for place in os.environ.get("LD_LIBRARY_PATH", "").split(":")
              for library in glob.glob(os.path.join(place, "libcupti.so*"))]
    headers = [path for root in roots for path in glob.glob(f"{root}/include/cupti.h") +
               glob.glob(f"{root}/extras/CUPTI/include/cupti.h")]
    libraries = [path for root in roots for path in glob.glob(f"{root}/lib*/libcupti.so*") +
                 glob.glob(f"{root}/extras/CUPTI/lib64/libcupti.so*")]
    runtimes = [path for root in roots for path in glob.glob(f"{root}/include/cuda.h")]
    if not headers or not libraries or not runtimes:
        raise NotHere("no CUPTI: found no cupti.h, libcupti.so or cuda.h")
    library = pathlib.Path(directory) / "timeline.so"
    done = work.run(["g++", "-O1", "-std=c++17", "-shared", "-fPIC", SOURCE, "-I", os.path.dirname(headers[0]), "-I",
                     os.path.dirname(runtimes[0]), libraries[0], "-o", library], 40)
    if done.returncode != 0:
        raise Failed(f"g++: {last_line(done.stderr)}")
    return library, os.path.dirname(libraries[0])


def record(work, library, cupti, directory, name):
    table = pathlib.Path(directory) / "nodes.csv"
    environment = {**os.environ, "CUDA_INJECTION64_PATH": str(library), "CONVOY_TIMELINE": str(table),
                   "LD_LIBRARY_PATH": f"{os.environ.get('LD_LIBRARY_PATH', '')}:{cupti}"}
    done = work.run([work.programs / "convoy-bench-step", "--device", "cuda", *STEPS[name], "--steps", 5, "--rounds", 1],
                    env=environment)
    if done.returncode != 0 or not table.exists():
        raise Failed(f"convoy-bench-step ended with code {done.returncode}: {last_line(done.stderr)}")
    text = table.read_text()
    work.keep(f"{name.split(',')[0]}-nodes.csv.gz", gzip.compress(text.encode()))
    work.found[name] = summary(last_replay(text))


def run(work):
    need_device(work)
    if work.quick:
        raise NotHere("emulated GPUs have no CUPTI")
    with tempfile.TemporaryDirectory() as directory:
        library, cupti = compile_library(work, directory)
        work.trials({name: functools.partial(record, work, library, cupti, directory, name) for name in STEPS})
