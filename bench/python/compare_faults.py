#!/usr/bin/env python3
"""Compares how long a job takes to notice that a rank was killed, or stopped by SIGSTOP: Convoy's and PyTorch DDP's
over gloo, on this machine.

    python3 bench/python/compare_faults.py

A training runs on several processes. Once it makes steps, a random one gets the signal. For each other rank, the
table shows the seconds from the signal to the end of its process, and whether its output names the rank at fault. A
rank that is still running at --limit has not noticed. Both sides are measured with their default timeouts and, for a
stopped rank, with --timeout.
"""

import argparse
import json
import os
import pathlib
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
FAULTS = {"killed": signal.SIGKILL, "stopped": signal.SIGSTOP}


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def convoy_command(arguments, out, timeout):
    command = [arguments.train, "--model", "lenet", "--dataset", "shapes", "--device", "cpu", "--threads", "1",
               "--batch-size", "64", "--epochs", "100000", "--eval-every", "0", "--log-every", "10", "--out", out]
    return command if timeout is None else [*command, "--comm-timeout", str(timeout)]


def pytorch_command(arguments, _, timeout):
    command = [arguments.python, str(HERE / "pytorch_ddp.py")]
    return command if timeout is None else [*command, "--timeout", str(timeout)]


def await_steps(log):
    end = time.monotonic() + 120
    while "step 30" not in log.read_text():
        if time.monotonic() > end:
            raise SystemExit(f"no steps after 120 s:\n{log.read_text()}")
        time.sleep(0.05)


def measure(command, ranks, fault, limit, folder):
    """Returns, for each rank but the one at fault, the seconds to its end (None: still running) and whether it names
    that rank."""
    port, logs, processes = free_port(), [], []
    for rank in range(ranks):
        logs.append(pathlib.Path(folder) / f"rank-{rank}.log")
        environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1",
                       "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        with open(logs[-1], "w") as log:
            processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=log))
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


def format_result(found, limit):
    seconds = [each["seconds"] for each in found]
    named = sum(each["names_rank"] for each in found)
    ended = [each for each in seconds if each is not None]
    text = f"none of {len(found)} ended within {limit:g} s" if not ended else (
        f"{statistics.median(ended):.2f} s ({min(ended):.2f} to {max(ended):.2f}), {len(ended)} of {len(found)}")
    return f"{text:44} {named} of {len(found)}"


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--train", default="build/release/bin/convoy-train")
    flags.add_argument("--python", default=sys.executable, help="a Python with PyTorch; default: this one")
    flags.add_argument("--sides", nargs="+", default=["Convoy", "PyTorch"], choices=["Convoy", "PyTorch"])
    flags.add_argument("--ranks", type=int, nargs="+", default=[2, 4])
    flags.add_argument("--times", type=int, default=3, help="faults per row")
    flags.add_argument("--timeout", type=float, default=15, help="timeout of both sides (seconds), in its rows")
    flags.add_argument("--limit", type=float, default=60, help="end of each measurement (seconds)")
    flags.add_argument("--json", type=pathlib.Path, help="result file (JSON)")
    arguments = flags.parse_args()
    print(f"{'':46}{'end of the other ranks':44} names the rank")
    rows = []
    for fault, timeout in [("killed", None), ("stopped", arguments.timeout), ("stopped", None)]:
        for ranks in arguments.ranks:
            for side, command in [("Convoy", convoy_command), ("PyTorch", pytorch_command)]:
                if side not in arguments.sides:
                    continue
                found = []
                for _ in range(arguments.times):
                    with tempfile.TemporaryDirectory() as folder:
                        found += measure(command(arguments, f"{folder}/out", timeout), ranks, fault, arguments.limit,
                                         folder)
                name = f"{fault}, {'default timeout' if timeout is None else f'timeout {timeout:g} s'}"
                print(f"{name:26} {ranks} ranks  {side:9} {format_result(found, arguments.limit)}", flush=True)
                rows.append({"fault": fault, "timeout": timeout, "ranks": ranks, "side": side, "results": found})
    if arguments.json:
        arguments.json.write_text(json.dumps({"limit": arguments.limit, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
