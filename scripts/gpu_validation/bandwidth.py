"""Measures each kernel's bandwidth relative to a copy with convoy-bench-kernels: the median of five runs."""

import json

from gpu_validation.work import Failed, last_line

# Goals for the bandwidth of a kernel, as a fraction of a copy's. The first prefix of its name applies.
GOALS = (("softmax", 0.92), ("batch_norm", 0.88), ("", 0.95))


def goal_of(kernel):
    return next(goal for prefix, goal in GOALS if kernel.startswith(prefix))


def rows_in(report):
    """Returns the medians of Google Benchmark's report."""
    return {row["run_name"].split("/")[0]: {"GB/s": row["GB/s"], "of_copy": row["of_copy"],
                                            "goal": goal_of(row["run_name"])}
            for row in report["benchmarks"] if row["aggregate_name"] == "median"}


def run(work):
    command = [work.programs / "convoy-bench-kernels", "--device", "cuda", "--benchmark_repetitions=5",
               "--benchmark_filter=^[a-z0-9_]+/manual_time$",  # kernels only; the names of ops begin with a network
               "--benchmark_min_time=0.1", "--benchmark_report_aggregates_only=true", "--benchmark_format=json"]
    if work.quick:
        command += ["--elements", 4096, "--benchmark_min_time=0.0001"]
    done = work.run(command)
    if done.returncode != 0:
        raise Failed(last_line(done.stderr))
    report = json.loads(done.stdout)
    work.found = {"copy_GB/s": report["context"]["copy_GB/s"], "kernels": rows_in(report)}
