"""Ranks that share one GPU through NCCL. Correctness alone: what they move goes through the host's loopback."""

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

# Trainings of 2 ranks beside 1: flags, steps (fewer where asked to be quick), and how far losses may be apart, since
# ranks add in another order. A net with batch norms amplifies that from step to step, but for double precision.
TRAININGS = {
    "lenet fp32": (["--model", "lenet", "--precision", "fp32"], 20, 1e-5),
    "lenet fp32 --zero 2": (["--model", "lenet", "--precision", "fp32", "--optimizer", "adamw", "--zero", 2], 20, 1e-5),
    "resnet20 fp64 --sync-bn --zero 1":
        (["--model", "resnet20", "--precision", "fp64", "--sync-bn", "--zero", 1], 4, 1e-9),
}
QUICK_STEPS = 4


def free_port():
    with contextlib.closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment_of(rank, ranks, port):
    """One of several processes of this host, which NCCL takes for hosts, since it wants a GPU for each rank of one."""
    variables = {"RANK": rank, "WORLD_SIZE": ranks, "LOCAL_RANK": rank, "LOCAL_WORLD_SIZE": ranks,
                 "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "NCCL_HOSTID": f"convoy-{port}-{rank}",
                 "NCCL_SOCKET_IFNAME": "lo"}
    return {**os.environ, **{name: str(value) for name, value in variables.items()}}


def run_ranks(work, ranks, command_of):
    """The finished processes of command_of(rank), which run at once."""
    port = free_port()
    with concurrent.futures.ThreadPoolExecutor(ranks) as pool:
        running = [pool.submit(work.run, command_of(rank), env=environment_of(rank, ranks, port))
                   for rank in range(ranks)]
        return [process.result() for process in running]


def join(outcomes):
    """What the ranks' reports say together: a case is run if any rank ran it, and fails where it fails on one."""
    failed = {f"rank {rank}: {name}": lines for rank, outcome in enumerate(outcomes)
              for name, lines in outcome["failed"].items()}
    return {"cases": outcomes[0]["tests"] - len(outcomes[0]["skipped"]), "failed": failed}


def conform(work, ranks):
    with tempfile.TemporaryDirectory() as folder:
        reports = [pathlib.Path(folder) / f"rank{rank}.json" for rank in range(ranks)]
        done = run_ranks(work, ranks, lambda rank: [work.programs / "comm_nccl_ranks", "--share-gpu",
                                                    f"--gtest_output=json:{reports[rank]}"])
        for rank, process in enumerate(done):
            if not reports[rank].exists():
                raise Failed(f"rank {rank} ended with code {process.returncode}: "
                             f"{last_line(process.stderr or process.stdout)}")
        outcome = join([outcome_of_report(json.loads(report.read_text())) for report in reports])
    work.found.setdefault("conformance", {})[str(ranks)] = outcome
    if outcome["failed"]:
        first, lines = next(iter(outcome["failed"].items()))
        raise Failed(f"{len(outcome['failed'])} failures, the first: {first}: {' '.join(lines)}")


def losses_of(work, ranks, flags, steps):
    """Of a training on generated images, with as many samples in each update, whoever computes them."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "run"
        # cuda:0 on each rank, so that a machine with several GPUs shows the same.
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
        raise Failed(f"losses differ by {worst:.1e}, at most {tolerance:.0e} expected")


def run(work):
    need_device(work)
    if not (work.programs / "comm_nccl_ranks").exists():
        raise NotHere("this build has no NCCL")
    for ranks in (1, 2, 4):
        work.trial(f"conformance, {ranks} {'rank' if ranks == 1 else 'ranks'}", functools.partial(conform, work, ranks))
    for name in TRAININGS:
        work.trial(f"{name}, 2 ranks beside 1", functools.partial(train, work, name))
