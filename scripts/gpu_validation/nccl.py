"""Runs ranks that share one GPU through NCCL. Checks correctness only: their data goes through the host's loopback."""

import concurrent.futures
import contextlib
import functools
import json
import os
import pathlib
import socket
import tempfile

from gpu_validation.device_tests import outcome_of_report
from gpu_validation.environment import need_device
from gpu_validation.training import worst_difference
from gpu_validation.work import Failed, NotHere, last_line

# Trainings of 2 ranks that are compared with 1 rank: flags, steps (fewer with --quick), tolerance of the losses.
# Ranks add in another order. A network with batch norm amplifies the difference in each step, except in fp64.
TRAININGS = {
    "lenet fp32": (["--model", "lenet", "--precision", "fp32"], 20, 1e-5),
    "lenet fp32 --zero 2": (["--model", "lenet", "--precision", "fp32", "--optimizer", "adamw", "--zero", 2], 20, 1e-5),
    "resnet20 fp64 --sync-bn --zero 1":
        (["--model", "resnet20", "--precision", "fp64", "--sync-bn", "--zero", 1], 4, 1e-9),
}
QUICK_STEPS = 4
PARTS = 6  # of the conformance cases
# Seconds that the cases wait for a missing rank. Connections of ranks that share a GPU need several of them.
SHORT_TIMEOUT = 10
PART_SECONDS = 75  # limit of a part


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment_of(rank, ranks, port, **more):
    """Returns the environment of one rank. NCCL treats each process as a host: ranks of one host need a GPU each."""
    variables = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks,
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NCCL_HOSTID": f"convoy-{port}-{rank}",
                 "NCCL_SOCKET_IFNAME": "lo", **more}
    return {**os.environ, **{name: str(value) for name, value in variables.items()}}


def run_ranks(work, ranks, command_of, limit=None, **variables):
    """Runs command_of(rank) for all ranks at once, for at most `limit` seconds, with these variables in their
    environment, and returns the finished processes."""
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        running = [pool.submit(work.run, command_of(rank), limit, env=environment_of(rank, ranks, port, **variables))
                   for rank in range(ranks)]
        return [process.result() for process in running]


def join(outcomes):
    """Joins the ranks' reports: a case fails if it fails on any rank."""
    failed = {f"rank {rank}: {name}": lines for rank, outcome in enumerate(outcomes)
              for name, lines in outcome["failed"].items()}
    return {"cases": outcomes[0]["tests"] - len(outcomes[0]["skipped"]), "failed": failed}


def conform(work, ranks, part, parts):
    """Runs one part of the conformance cases, so that a case that hangs takes only the results of its part with it."""
    with tempfile.TemporaryDirectory() as directory:
        reports = [pathlib.Path(directory) / f"rank{rank}.json" for rank in range(ranks)]
        done = run_ranks(work, ranks, lambda rank: [work.programs / "comm_nccl_ranks", "--share-gpu",
                                                    f"--gtest_output=json:{reports[rank]}"],
                         PART_SECONDS, GTEST_TOTAL_SHARDS=parts, GTEST_SHARD_INDEX=part,
                         CONVOY_SHORT_TIMEOUT=2 if work.quick else SHORT_TIMEOUT)
        for rank, process in enumerate(done):
            if not reports[rank].exists():
                raise Failed(f"rank {rank} ended with code {process.returncode}: "
                             f"{last_line(process.stderr or process.stdout)}")
        outcome = join([outcome_of_report(json.loads(report.read_text())) for report in reports])
    found = work.found.setdefault("conformance", {}).setdefault(str(ranks), {"cases": 0, "failed": {}})
    found["cases"] += outcome["cases"]
    found["failed"].update(outcome["failed"])
    if outcome["failed"]:
        first, lines = next(iter(outcome["failed"].items()))
        raise Failed(f"{len(outcome['failed'])} failures, the first: {first}: {' '.join(lines)}")


def losses_of(work, ranks, flags, steps):
    """Returns the losses of a training on generated images with a fixed global batch size."""
    with tempfile.TemporaryDirectory() as directory:
        out = pathlib.Path(directory) / "run"
        # cuda:0 on each rank, so that a machine with several GPUs behaves the same.
        command = [work.programs / "convoy-train", "--dataset", "shapes", "--device", "cuda:0", *flags,
                   "--max-steps", steps, "--batch-size", 24, "--log-every", 1, "--eval-every", 0,
                   "--save-every", 1000000, "--plan-cache", "none", "--out", out]
        if ranks > 1:
            command += ["--rendezvous", "env", "--comm", "nccl", "--allow-shared-gpu", "--comm-timeout", 60]
        for rank, process in enumerate(run_ranks(work, ranks, lambda rank: command)):
            if process.returncode != 0:
                raise Failed(f"rank {rank} of {ranks}: code {process.returncode}, {last_line(process.stderr)}")
        log = [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]
    if log[0]["world_size"] != ranks:
        raise Failed(f"{ranks} processes made a job of {log[0]['world_size']}: {log[0]['ranks']}")
    return [line["loss"] for line in log if line["event"] == "step"]


def train(work, name):
    flags, steps, tolerance = TRAININGS[name]
    steps = QUICK_STEPS if work.quick else steps
    together, alone = losses_of(work, 2, flags, steps), losses_of(work, 1, flags, steps)
    worst = worst_difference(together, alone)
    work.found.setdefault("training", {})[name] = {"steps": len(together), "worst_relative_difference": worst,
                                                   "tolerance": tolerance}
    if not worst <= tolerance:
        raise Failed(f"losses differ by {worst:.1e}, expected at most {tolerance:.0e}")


def run(work):
    need_device(work)
    if not (work.programs / "comm_nccl_ranks").exists():
        raise NotHere("this build has no NCCL")
    for name in TRAININGS:
        work.trial(f"{name}, 2 ranks compared with 1", functools.partial(train, work, name))
    for ranks in (2, 1, 4):
        for part in range(PARTS):
            work.trial(f"conformance, {ranks} {'rank' if ranks == 1 else 'ranks'}, part {part + 1} of {PARTS}",
                       functools.partial(conform, work, ranks, part, PARTS))
