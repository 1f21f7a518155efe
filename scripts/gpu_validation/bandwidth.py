"""Measures kernels, and the ops of ResNet-18 in bf16, with convoy-bench-kernels: the median of five runs."""

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


def ops_in(report):
    """Returns the medians of Google Benchmark's report by op and direction."""
    return {row["run_name"].removesuffix("/manual_time"): {what: row[what] for what in ("GB/s", "GFLOP/s", "of_ceiling")}
            for row in report["benchmarks"] if row["aggregate_name"] == "median"}


def measure(work, *flags):
    command = [work.programs / "convoy-bench-kernels", "--device", "cuda", *flags, "--benchmark_repetitions=5",
               f"--benchmark_min_time={0.0001 if work.quick else 0.1}", "--benchmark_report_aggregates_only=true",
               "--benchmark_format=json"]
    done = work.run(command)
    if done.returncode != 0:
        raise Failed(last_line(done.stderr))
    return json.loads(done.stdout)


def measure_kernels(work):
    # The names of ops begin with a network.
    report = measure(work, "--benchmark_filter=^[a-z0-9_]+/manual_time$", *(["--elements", 4096] if work.quick else []))
    work.found |= {"copy_GB/s": report["context"]["copy_GB/s"], "kernels": rows_in(report)}


def measure_ops(work):
    work.found["ops"] = ops_in(measure(work, "--benchmark_filter=^resnet18/", "--precision", "bf16", "--batch-size", 128))


def run(work):
    parts = {"kernels": lambda: measure_kernels(work)}
    if not work.quick:  # an emulated GPU would take hours for the GEMM that is the ceiling of an op
        parts["ops"] = lambda: measure_ops(work)
    work.trials(parts)
