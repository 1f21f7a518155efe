#!/usr/bin/env python3
"""Computes how much gradient communication backward hides on a link of a given bandwidth, for several bucket plans.

    python3 bench/python/overlap_model.py bench/results/xeon-2-cores/overlap_resnet18.json --scale-to 1.5
    python3 bench/python/overlap_model.py trace.json      # of convoy-train --trace on several ranks

bench/README.md, "Overlap", defines the model. STEP has the time at which each gradient is ready, or is a trace. Of a
trace, the last step of rank 0 counts, and each of its buckets as one gradient; --bucket-mb 0.001 makes them parameters.
"""

import argparse
import json
import pathlib
import re
import sys

from comparisons.harness import at_least

KIB, ALIGNMENT, ELEMENT = 1 << 10, 256, 4  # bytes; gradients are f32, and slices of a bucket begin at multiples


def read_step(file):
    """Returns {"step_ms", "backward_ms", "gradients": [{"numel", "ready_ms"}]} of a recorded step or of a trace."""
    found = json.loads(file.read_text())
    if "traceEvents" not in found:
        return found
    spans = [event for event in found["traceEvents"] if event["ph"] == "X" and event["pid"] == 0]
    forward, backward, optimizer = (max((span for span in spans if span["name"] == name), key=lambda span: span["ts"])
                                    for name in ("forward", "backward", "optimizer"))
    sizes = [(re.fullmatch(r"bucket \d+ \((.*) MB\)", span["name"]), span["ts"] - backward["ts"]) for span in spans]
    return {"step_ms": (optimizer["ts"] + optimizer["dur"] - forward["ts"]) / 1e3, "backward_ms": backward["dur"] / 1e3,
            "gradients": [{"numel": max(1, round(float(size[1]) * 1e6 / ELEMENT)), "ready_ms": min(after, backward["dur"]) / 1e3}
                          for size, after in sizes if size and after >= 0]}


def scaled(step, step_ms):
    """Returns the step with all times scaled such that it takes `step_ms`; unchanged if None."""
    factor = (step_ms or step["step_ms"]) / step["step_ms"]
    return {"step_ms": factor * step["step_ms"], "backward_ms": factor * step["backward_ms"], "gradients": [
        {"numel": gradient["numel"], "ready_ms": factor * gradient["ready_ms"]} for gradient in step["gradients"]]}


def plans_of(gradients):
    """Returns {name: buckets}, each bucket a list of gradients in the order of their ready times."""
    ordered = sorted(reversed(gradients), key=lambda gradient: gradient["ready_ms"])
    convoy, limit, held = [[]], 512 * KIB, 0  # from the last bucket to the first, like BucketPlan::by_ready_times
    for gradient in reversed(ordered):
        size = -(-gradient["numel"] * ELEMENT // ALIGNMENT) * ALIGNMENT
        if convoy[0] and held + size > limit:
            convoy, limit, held = [[], *convoy], min(4 * limit, 10240 * KIB), 0
        convoy[0], held = [gradient, *convoy[0]], held + size
    pytorch, limit, held = [], 0, 0  # a bucket of DistributedDataParallel is closed when it holds `limit`
    for gradient in ordered:
        if held >= limit:
            pytorch, limit, held = [*pytorch, []], 25600 * KIB if pytorch else 1024 * KIB, 0
        pytorch[-1].append(gradient)
        held += gradient["numel"] * ELEMENT
    return {"convoy": convoy, "PyTorch's rule": pytorch, "one bucket": [ordered],
            "one per parameter": [[gradient] for gradient in ordered]}


def simulate(step, buckets, gb_s, latency_us, ranks, element=ELEMENT):
    """Returns the bytes of each bucket, and the milliseconds of communication and of its exposed part."""
    sizes = [element * sum(-(-gradient["numel"] * ELEMENT // ALIGNMENT) * ALIGNMENT // ELEMENT for gradient in bucket)
             for bucket in buckets]
    sizes[-1] += element * len(step["gradients"])  # a flag for each parameter
    free, total = 0, 0
    for bucket, size in zip(buckets, sizes):
        took = latency_us * 1e-3 + size * 2 * (ranks - 1) / ranks / (gb_s * 1e6)
        free = max(free, *(gradient["ready_ms"] for gradient in bucket)) + took
        total += took
    return sizes, total, max(0, free - step["backward_ms"])


def bandwidths(text):
    """Returns the numbers of a list of bandwidths."""
    return [at_least(0.001, float)(word) for word in text.split(",")]


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("step", type=pathlib.Path, metavar="STEP", help="recorded step, or trace of convoy-train (JSON)")
    flags.add_argument("--scale-to", type=at_least(0.001, float), metavar="MS", help="scale all times to a step of this length")
    flags.add_argument("--bandwidth", type=bandwidths, default="475,100,25", help="bus bandwidths (GB/s); default: 475,100,25")
    flags.add_argument("--latency-us", type=at_least(0, float), default=10, help="latency of a transfer (microseconds); default: 10")
    flags.add_argument("--ranks", type=at_least(2), default=8, help="world size; default: 8")
    flags.add_argument("--bf16", action="store_true", help="send gradients in bf16: half the bytes")
    options = flags.parse_args()
    try:
        step = scaled(read_step(options.step), options.scale_to)
    except (OSError, ValueError, KeyError, TypeError) as problem:
        sys.exit(f"overlap_model: {options.step}: found no step, expected a recorded one or a trace of ranks: {problem}")
    print("| GB/s | plan | buckets | last bucket, MB | communication, ms | exposed, ms | of the step |\n" + "|---" * 7 + "|")
    for gb_s in options.bandwidth:
        for name, buckets in plans_of(step["gradients"]).items():
            sizes, total, exposed = simulate(step, buckets, gb_s, options.latency_us, options.ranks,
                                             ELEMENT // 2 if options.bf16 else ELEMENT)
            print(f"| {gb_s:g} | {name} | {len(sizes)} | {sizes[-1] / 1e6:.2f} | {total:.3f} | {exposed:.3f} | "
                  f"{100 * exposed / step['step_ms']:.2f} % |")


if __name__ == "__main__":
    main()
