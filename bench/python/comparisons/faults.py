"""Compares how long a job takes to notice that a rank was killed or stopped, with PyTorch DDP over gloo.

    python3 bench/python/compare.py faults

A training runs on several processes. Once it makes steps, a random one gets SIGKILL or SIGSTOP. For each other rank, the
table shows the seconds from the signal to the end of its process, and whether its output names the rank at fault. A
rank that is still running at --limit has not noticed. Both sides are measured with their default timeouts and, for a
stopped rank, with --timeout.
"""

import pathlib
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from comparisons.harness import PYTORCH, Unavailable, at_least, rank_environments, reason, table

PROGRAM = "convoy-train"
FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def convoy_command(arguments, out, timeout):
    command = [arguments.convoy, "--model", "lenet", "--dataset", "shapes", "--device", "cpu", "--threads", "1",
               "--batch-size", "64", "--epochs", "100000", "--eval-every", "0", "--log-every", "10", "--out", out]
    return command if timeout is None else [*command, "--comm-timeout", str(timeout)]


def pytorch_command(arguments, _, timeout):
    command = [arguments.python, PYTORCH / "pytorch_ddp.py"]
    return command if timeout is None else [*command, "--timeout", str(timeout)]


def await_steps(log):
    end = time.monotonic() + 120
    while "step 30" not in log.read_text():
        if time.monotonic() > end:
            raise Unavailable(f"no steps after 120 s: {reason(log.read_text())}")
        time.sleep(0.05)


def measure(command, ranks, fault, limit, directory):
    """Returns, for each rank but the one at fault, the seconds to its end (None: still running) and whether it names
    that rank."""
    logs, processes = [], []
    for rank, environment in enumerate(rank_environments(ranks)):
        logs.append(pathlib.Path(directory) / f"rank-{rank}.log")
        with open(logs[-1], "w") as log:
            processes.append(subprocess.Popen(command, env={**environment, "OMP_NUM_THREADS": "1"}, stdout=log,
                                              stderr=log))
    try:
        await_steps(logs[0])
        at_fault = random.randrange(ranks)
        begin = time.monotonic()
        processes[at_fault].send_signal(FAULTS[fault])
        ends = {}
        others = [rank for rank in range(ranks) if rank != at_fault]
        while len(ends) < len(others) and time.monotonic() < begin + limit:
            for rank in others:
                if rank not in ends and processes[rank].poll() is not None:
                    ends[rank] = time.monotonic() - begin
            time.sleep(0.005)
        return [{"seconds": ends.get(rank), "names_rank": f"rank {at_fault} on " in logs[rank].read_text()}
                for rank in others]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def format_ends(results, limit):
    seconds = [each["seconds"] for each in results if each["seconds"] is not None]
    if not seconds:
        return f"none of {len(results)} ended within {limit:g} s"
    return (f"{statistics.median(seconds):.2f} s ({min(seconds):.2f} to {max(seconds):.2f}), {len(seconds)} of "
            f"{len(results)}")


def compare(arguments, _):
    rows = []
    for fault, timeout in [("killed", None), ("stopped", arguments.timeout), ("stopped", None)]:
        for ranks in arguments.ranks:
            for side, command in [("Convoy", convoy_command), ("PyTorch", pytorch_command)]:
                if side not in arguments.sides:
                    continue
                found = []
                for _ in range(arguments.times):
                    with tempfile.TemporaryDirectory() as directory:
                        found += measure(command(arguments, f"{directory}/out", timeout), ranks, fault, arguments.limit,
                                         directory)
                rows.append({"fault": fault, "timeout": timeout, "ranks": ranks, "side": side, "results": found})
                print(f"  {side}, {ranks} ranks, {fault}: {format_ends(found, arguments.limit)}", flush=True)
    return {"limit": arguments.limit, "rows": rows}


def print_figures(figures):
    rows = []
    for row in figures["rows"]:
        timeout = "default" if row["timeout"] is None else f"{row['timeout']:g} s"
        named = sum(each["names_rank"] for each in row["results"])
        rows.append((row["fault"], timeout, row["ranks"], row["side"], format_ends(row["results"], figures["limit"]),
                     f"{named} of {len(row['results'])}"))
    print("\n".join(table(("fault", "timeout", "ranks", "side", "end of the other ranks", "that name the rank"), rows)))


def add_flags(flags):
    flags.add_argument("--python", default=sys.executable, help="a Python with PyTorch; default: this one")
    flags.add_argument("--sides", nargs="+", default=["Convoy", "PyTorch"], choices=["Convoy", "PyTorch"])
    flags.add_argument("--ranks", type=at_least(2), nargs="+", default=[2, 4])
    flags.add_argument("--times", type=at_least(1), default=3, help="faults per row")
    flags.add_argument("--timeout", type=at_least(0.1, float), default=15, help="timeout of both sides (seconds), in its rows")
    flags.add_argument("--limit", type=at_least(1, float), default=60, help="end of each measurement (seconds)")


def check(arguments):
    """Refuses an interpreter that does not exist."""
    if "PyTorch" in arguments.sides and shutil.which(arguments.python) is None:
        arguments.error(f"--python: found no program {arguments.python}")
