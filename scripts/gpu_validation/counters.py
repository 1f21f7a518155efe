"""Compares what the kernels of a step access with the committed counts: one step of ResNet-18 under Nsight Compute."""

import csv
import glob
import json
import pathlib
import shutil

from gpu_validation.environment import need_device
from gpu_validation.work import Failed, NotHere, last_line

COUNTED = pathlib.Path(__file__).resolve().parents[2] / "bench" / "results" / "counted" / "resnet18-bf16-128.json"
STEP = ("--model", "resnet18", "--precision", "bf16", "--batch-size", "128")
QUICK_STEP = ("--model", "lenet", "--batch-size", "8")
# Figure: the metrics of Nsight Compute that it sums. The first ones are also counted by the emulator.
COUNTS = {
    "requests": ("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_requests_pipe_lsu_mem_global_op_st.sum"),
    "sectors": ("l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum", "l1tex__t_sectors_pipe_lsu_mem_global_op_st.sum"),
    "wavefronts": ("l1tex__data_pipe_lsu_wavefronts_mem_shared_op_ld.sum",
                   "l1tex__data_pipe_lsu_wavefronts_mem_shared_op_st.sum"),
}
MEASURED = {**COUNTS, "bytes": ("dram__bytes_read.sum", "dram__bytes_write.sum"), "ns": ("gpu__time_duration.sum",)}
TOLERANCE = 0.02  # of a count; nvcc may keep a value that g++ loads again
# Larger differences that an H200 showed (bench/results/h200): nvcc loads a struct in other pieces, and accesses shared
# memory by other instructions.
KNOWN = {
    "step_kernel": {"requests": 0.08},
    "prepare_kernel": {"requests": 1.5, "sectors": 1.6},
    "augment_kernel": {"wavefronts": 0.18},
    "batch_norm_moments_kernel": {"wavefronts": 0.07},
    "batch_norm_gradient_sums_kernel": {"wavefronts": 0.07},
    "forward_total_kernel": {"wavefronts": 0.45},
}
LIBRARIES = "convolutions and GEMMs"


def measured_launches(text):
    """Returns the kernels in a CSV of `ncu --csv --page raw --print-units base`: name, blocks, threads, and figures."""
    lines = text.splitlines()
    begin = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        raise Failed(f"ncu: {last_line(text)}")
    launches = []
    for row in csv.DictReader(lines[begin:]):
        if not row["ID"]:  # the units
            continue
        launch = {"name": row["Kernel Name"], "blocks": volume(row["Grid Size"]), "threads": volume(row["Block Size"])}
        for figure, metrics in MEASURED.items():
            launch[figure] = sum(float(row[metric].replace(",", "") or 0) for metric in metrics)
        launches.append(launch)
    return launches


def volume(text):
    """Returns 12 for "(3, 4, 1)"."""
    x, y, z = (int(part) for part in text.strip("()").split(","))
    return x * y * z


def counted_launches(report):
    """Returns the launches in a report of `convoy-bench-step --count --json`."""
    return [{"name": launch["name"], "blocks": launch["blocks"], "threads": launch["threads"],
             "requests": launch["requests_loaded"] + launch["requests_stored"],
             "sectors": launch["sectors_loaded"] + launch["sectors_stored"],
             "wavefronts": launch["shared_wavefronts"], "bytes": launch["bytes_read"] + launch["bytes_written"],
             "ns": 1e3 * launch["predicted_us"]} for launch in report["counts"]["launches"]]


def sums(launches):
    """Returns {(name, blocks, threads): {"launches": n, figure: sum …}}."""
    groups = {}
    for launch in launches:
        group = groups.setdefault((launch["name"], launch["blocks"], launch["threads"]), dict.fromkeys(MEASURED, 0.0))
        group["launches"] = group.get("launches", 0) + 1
        for figure in MEASURED:
            group[figure] += launch[figure]
    return groups


def compare(counted, measured):
    """Returns the rows of the table, the longest first, and the differences beyond the tolerance, one line each.

    Counted and measured launches of a kernel are joined by name, blocks and threads. What the emulator does not count
    are kernels of cuDNN and cuBLASLt, which are joined in one row; copies and fills are no kernels."""
    own = [launch for launch in counted if launch["threads"] > 0]
    names = {launch["name"] for launch in own}
    ours = sums(own)
    theirs = sums([launch for launch in measured if launch["name"] in names])
    rows, problems = [], []
    for key in sorted(ours.keys() | theirs.keys()):
        name = f"{key[0]}, {key[1]} x {key[2]}"
        if key not in ours or key not in theirs:
            problems.append(f"{name}: counted {ours.get(key, {}).get('launches', 0)} launches, "
                            f"measured {theirs.get(key, {}).get('launches', 0)}")
            continue
        ratios = {figure: theirs[key][figure] / ours[key][figure] if ours[key][figure] else None for figure in MEASURED}
        rows.append({"name": name, "launches": [ours[key]["launches"], theirs[key]["launches"]],
                     "megabytes": [group[key]["bytes"] / 1e6 for group in (ours, theirs)],
                     "us": [group[key]["ns"] / 1e3 for group in (ours, theirs)],
                     **{figure: ratios[figure] for figure in COUNTS}})
        if ours[key]["launches"] != theirs[key]["launches"]:
            problems.append(f"{name}: counted {ours[key]['launches']} launches, measured {theirs[key]['launches']}")
            continue
        for figure in COUNTS:
            tolerance = KNOWN.get(key[0], {}).get(figure, TOLERANCE)
            if abs(theirs[key][figure] - ours[key][figure]) > tolerance * max(ours[key][figure], 1):
                problems.append(f"{name}: counted {ours[key][figure]:.0f} {figure}, measured {theirs[key][figure]:.0f}")
    libraries = [launch for launch in measured if launch["name"] not in names]
    of_libraries = [launch for launch in counted if launch["name"].startswith(("conv2d", "gemm"))]
    rows.append({"name": LIBRARIES, "launches": [len(of_libraries), len(libraries)],
                 "megabytes": [sum(launch["bytes"] for launch in side) / 1e6 for side in (of_libraries, libraries)],
                 "us": [sum(launch["ns"] for launch in side) / 1e3 for side in (of_libraries, libraries)],
                 **dict.fromkeys(COUNTS)})
    rows.sort(key=lambda row: -row["us"][1])
    return rows, problems


def find_profiler():
    places = [shutil.which("ncu")] + sorted(glob.glob("/usr/local/cuda*/bin/ncu") +
                                            glob.glob("/opt/nvidia/nsight-compute/*/ncu"))[::-1]
    return next((place for place in places if place), None)


def run(work):
    need_device(work)
    profiler = find_profiler()
    if not profiler:
        raise NotHere("no ncu (Nsight Compute)")
    # The program marks one replay of the step's graph for profilers. Clocks stay as they are: changing them needs rights.
    done = work.run([profiler, "--nvtx", "--nvtx-include", "one measured step/", "--graph-profiling", "node",
                     "--clock-control", "none", "--print-kernel-base", "function", "--print-units", "base", "--csv",
                     "--page", "raw", "--metrics", ",".join(sum(MEASURED.values(), ())),
                     work.programs / "convoy-bench-step", "--device", "cuda", *(QUICK_STEP if work.quick else STEP),
                     "--steps", "1", "--warmup", "4", "--rounds", "2"])
    if "ERR_NVGPUCTRPERM" in done.stdout + done.stderr:
        raise NotHere("this user may not read the counters of the GPU (ERR_NVGPUCTRPERM)")
    if done.returncode != 0:
        raise Failed(f"ncu ended with code {done.returncode}: {last_line(done.stderr or done.stdout)}")
    measured = measured_launches(done.stdout)
    if work.quick:  # tiny steps were not counted
        work.found = {"kernels": len(measured)}
        return
    rows, work.problems[:] = compare(counted_launches(json.loads(COUNTED.read_text())), measured)
    work.found = {"rows": rows}
