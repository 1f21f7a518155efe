"""Compares training throughput of Convoy and PyTorch on the same CPU or GPU, in alternating runs.

    python3 bench/python/compare.py step --model resnet18 --batch-size 128 --python /path/to/python
    python3 bench/python/compare.py step --build build/cuda --device cuda --precision bf16

Both sides train the same network with Nesterov SGD. Convoy runs convoy-train on generated images, which it gathers and
normalizes in each step. PyTorch (pytorch_step.py) uses one fixed batch, without a loader. A round is one run of Convoy
in its own process, then windows of each PyTorch side, which stays warm in between. The result of a side is the median
over the rounds of the median window. On a GPU, Convoy autotunes before the first round and keeps its algorithm cache
(--plan-cache), as PyTorch does in its warm-up. Needs a Python interpreter with torch.
"""

import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import generated_images
from comparisons.harness import (PYTORCH, ROUND_SECONDS, Peer, Unavailable, at_least, busy_processes, collect_rounds,
                                 events_of, format_spread, ratios_by_round, reason, run_to_end, spread, started_peers)

PROGRAM = "convoy-train"
PEER = PYTORCH / "pytorch_step.py"
FORMATS = ("contiguous_format", "channels_last")
MODELS = ("lenet", "resnet20", "resnet18", "resnet34", "resnet50")


class StepPeer(Peer):
    """A process of pytorch_step.py."""

    def __init__(self, python, flags):
        super().__init__(python, PEER, flags)

    def wait_until_first_step(self, seconds):
        """Blocks until the first step. Returns the message and the seconds since the start of the process."""
        answer, after = self.answer("first step", seconds)
        self.start_resident_bytes = answer.get("start_resident_bytes", 0)
        return answer, after

    def windows(self, steps, count, seconds):
        """Measures windows. Returns the median milliseconds per step, and the memory."""
        found = [self.ask(steps, "window", seconds) for _ in range(count)]
        return statistics.median(window["step_ms"] for window in found), {
            "peak_bytes": found[-1].get("peak_bytes", 0),
            "peak_resident_bytes": found[-1].get("peak_resident_bytes", 0),
            "start_resident_bytes": self.start_resident_bytes
        }


def convoy_command(arguments, data, out):
    command = [arguments.convoy, "--model", arguments.model, "--dataset", "folder", "--data", data, "--augment", "none",
               "--batch-size", arguments.batch_size, "--device", arguments.device, "--precision", arguments.precision,
               "--lr", 0.01, "--schedule", "constant", "--threads", arguments.threads, "--eval-every", 0,
               "--save-every", 1000000, "--keep-last", 1, "--out", out]
    return [str(word) for word in command]


def read_windows(log, warmup):
    """Returns the step times of the text of a log.jsonl after the warm-up windows, and the peak memory."""
    steps = events_of(log, "step")
    if len(steps) <= warmup:
        raise Unavailable(f"found {len(steps)} steps in the log, expected more than {warmup}")
    return [step["step_ms"] for step in steps[warmup:]], steps[-1]["memory_bytes"]


def convoy_windows(arguments, data, extra, seconds):
    """Does the same as StepPeer.windows, in a new process of convoy-train."""
    with tempfile.TemporaryDirectory() as out:
        command = convoy_command(arguments, data, out) + [
            "--max-steps", str((arguments.warmup + arguments.windows) * arguments.steps),
            "--log-every", str(arguments.steps), *extra]
        done = run_to_end(command, seconds)
        windows, memory = read_windows((pathlib.Path(out) / "log.jsonl").read_text(), arguments.warmup)
    return statistics.median(windows), {"peak_bytes": memory, "peak_resident_bytes": done.peak_resident_bytes}


def write_images(arguments, directory):
    """Writes whole batches: two of large images, or enough of small ones that ends of epochs are rare."""
    max_images = 0
    if arguments.image_size < 64:
        max_images = 10240 if arguments.device == "cuda" else 2048
    steps = (arguments.warmup + arguments.windows) * arguments.steps
    batches = max(2, -(-generated_images.CLASSES // arguments.batch_size),
                  min(-(-max_images // arguments.batch_size), steps))
    generated_images.write_dataset(directory, arguments.image_size, batches * arguments.batch_size)


def peer_flags(arguments, side):
    compiled, memory_format = side.split(":")
    return ["--model", arguments.model, "--image-size", arguments.image_size, "--batch-size", arguments.batch_size,
            "--device", arguments.device, "--precision", arguments.precision, "--threads", arguments.threads,
            "--memory-format", memory_format, "--compile", "no" if compiled == "eager" else compiled]


def summary(batch_size, times_ms, memory):
    rates = spread([batch_size / time_ms * 1e3 for time_ms in times_ms])
    return {
        "images_per_second": rates["median"],
        "lowest": rates["lowest"],
        "highest": rates["highest"],
        "rounds": len(times_ms),
        **memory
    }


def memory_ratios(ours, theirs):
    """Returns ratios of peak resident memory: of whole processes, and without the memory before training."""

    def growth(side):
        return side["peak_resident_bytes"] - side["start_resident_bytes"]

    if not theirs["peak_resident_bytes"]:
        return {}
    return {
        "whole": ours["peak_resident_bytes"] / theirs["peak_resident_bytes"],
        "growth": growth(ours) / growth(theirs)
    }


def compare_rates(arguments, left):
    """Returns the results of every side. Raises Unavailable if Convoy was not measured."""
    about, idle = {}, []
    start_bytes = run_to_end([arguments.convoy, "--version"], left()).peak_resident_bytes

    def warm_up(side, peer):
        def seconds():
            return left() - ROUND_SECONDS * arguments.rounds

        about["torch"] = peer.wait_until_first_step(seconds())[0]["torch"]
        _, about[f"seconds until {side} is warm"] = peer.answer("warm", seconds())

    with tempfile.TemporaryDirectory() as work:
        data = pathlib.Path(work) / "data"
        write_images(arguments, data)
        variants = {"convoy": ["--plan-cache", str(pathlib.Path(work) / "plans")] if arguments.device == "cuda" else []}
        if arguments.device == "cuda":
            for flags in variants.values():
                convoy_windows(arguments, data, flags, left())
        with started_peers(arguments.sides, lambda side: StepPeer(arguments.python, peer_flags(arguments, side)),
                           warm_up) as (peers, left_out):

            def measure():
                found = {name: convoy_windows(arguments, data, flags, left()) for name, flags in variants.items()}
                for side, peer in peers.items():
                    found[side] = peer.windows(arguments.steps, arguments.windows, left())
                return found

            def run_round(_):
                if arguments.busy_processes:
                    idle.append(measure())
                with busy_processes(arguments.busy_processes):
                    return measure()

            found = collect_rounds(arguments.rounds, left, run_round)
    times = {side: [each[side][0] for each in found] for side in found[0]}
    sides = {side: summary(arguments.batch_size, found_ms, found[-1][side][1]) for side, found_ms in times.items()}
    others = [side for side in sides if side != "convoy"]
    for name in variants:
        sides[name]["start_resident_bytes"] = start_bytes
    for side in sides if idle else ():
        sides[side]["idle"] = summary(arguments.batch_size, [each[side][0] for each in idle], {})
    return {"model": arguments.model, "image_size": arguments.image_size, "batch_size": arguments.batch_size,
            "device": arguments.device, "precision": arguments.precision, "threads": arguments.threads,
            "busy_processes": arguments.busy_processes, **about, "sides": sides,
            "ratios": {side: sides["convoy"]["images_per_second"] / sides[side]["images_per_second"] for side in others},
            "ratios_by_round": {side: ratios_by_round(times[side], times["convoy"]) for side in others},
            # Of the speed of the same side in the same round without the busy processes.
            "relative_to_idle": {side: ratios_by_round([each[side][0] for each in idle], times[side])
                                 for side in sides if idle},
            "memory_ratios": {side: memory_ratios(sides["convoy"], sides[side]) for side in others},
            "left_out": left_out}


def cold_start(arguments, left):
    """Measures the seconds from process start to the end of the first step, alternating Convoy and PyTorch."""
    times = {"convoy": [], "pytorch": []}
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        count = max(2 * arguments.batch_size, generated_images.CLASSES)
        generated_images.write_dataset(work / "data", arguments.image_size, count)
        for i in range(arguments.rounds):
            log = work / f"out{i}" / "log.jsonl"
            # The output goes to a file, because a pipe without a reader would fill up.
            with tempfile.TemporaryFile(mode="w+") as output:
                begin = time.monotonic()
                command = convoy_command(arguments, work / "data", log.parent)
                command += ["--max-steps", "1", "--log-every", "1"]
                command += ["--plan-cache", "none"] if arguments.device == "cuda" else []
                process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT)
                while not (log.exists() and '"event":"step"' in log.read_text()):
                    if process.poll() is not None and process.returncode != 0:
                        output.seek(0)
                        raise Unavailable(f"convoy-train: code {process.returncode}, {reason(output.read())}")
                    time.sleep(0.002)
                times["convoy"].append(time.monotonic() - begin)
                process.wait()
            peer = StepPeer(arguments.python, [*peer_flags(arguments, "eager:channels_last"), "--warmup", 1])
            try:
                answer, seconds = peer.wait_until_first_step(min(120, left()))
                times["pytorch"].append(seconds)
            finally:
                peer.close()
    medians = {side: statistics.median(found) for side, found in times.items()}
    return {"torch": answer["torch"], "seconds": medians, "all": times,
            "ratio": medians["convoy"] / medians["pytorch"],
            "ratios_by_round": ratios_by_round(times["convoy"], times["pytorch"])}


def compare(arguments, left):
    return cold_start(arguments, left) if arguments.cold_start else compare_rates(arguments, left)


def print_figures(figures):
    if "seconds" in figures:
        seconds = figures["seconds"]
        print(f"time to first step: {seconds['convoy']:.2f} s, PyTorch {seconds['pytorch']:.2f} s, ratio "
              f"{format_spread(figures['ratios_by_round'])}")
        return
    load = f", with {figures['busy_processes']} busy processes" if figures["busy_processes"] else ""
    print(f"{figures['model']}, {figures['image_size']} pixels, batch {figures['batch_size']}, {figures['device']}, "
          f"{figures['precision']}{load}, PyTorch {figures.get('torch', 'not compared')}, median of "
          f"{figures['sides']['convoy']['rounds']} rounds (minimum to maximum)")
    for side, entry in figures["sides"].items():
        memory = f", {entry['peak_bytes'] / 1e6:.0f} MB" if entry["peak_bytes"] else ""
        if entry["peak_resident_bytes"]:
            memory += (f", process {entry['peak_resident_bytes'] / 1e6:.0f} MB, of which "
                       f"{entry['start_resident_bytes'] / 1e6:.0f} before training")
        print(f"  {side:32s} {entry['images_per_second']:10.1f} images/s "
              f"({entry['lowest']:.1f} to {entry['highest']:.1f}){memory}")
    for side, relative in figures["relative_to_idle"].items():
        print(f"  {side:32s} {format_spread(relative)} of its speed without the busy processes")
    for side, why in figures["left_out"].items():
        print(f"  {side:32s} left out: {why}")
    for side, rounds in figures["ratios_by_round"].items():
        memory = figures["memory_ratios"][side]
        more = f"; memory {memory['whole']:.2f}, growth {memory['growth']:.2f}" if memory else ""
        print(f"  convoy / {side:23s} {format_spread(rounds)}{more}")


def add_flags(flags):
    flags.add_argument("--python", default=sys.executable, help="Python interpreter with torch; default: this one")
    flags.add_argument("--model", default="resnet18", choices=MODELS)
    flags.add_argument("--image-size", type=at_least(1), default=32)
    flags.add_argument("--batch-size", type=at_least(1), default=128)
    flags.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    flags.add_argument("--precision", default="fp32", choices=["fp64", "fp32", "tf32", "bf16", "fp16"])
    flags.add_argument(
        "--sides",
        help="PyTorch sides, comma-separated MODE:FORMAT, where MODE is eager or a mode of torch.compile and FORMAT is "
        "contiguous_format or channels_last; default: eager with both formats on the CPU, eager and max-autotune with "
        "channels_last on a GPU")
    flags.add_argument("--steps", type=at_least(1), help="steps in a window; default: 1 on the CPU, 100 on a GPU")
    flags.add_argument("--windows", type=at_least(1), default=5, help="windows per side and round")
    flags.add_argument("--warmup", type=at_least(0), default=3, help="warm-up windows per run of Convoy")
    flags.add_argument("--rounds", type=at_least(1), default=5)
    flags.add_argument("--threads", type=at_least(1), default=len(os.sched_getaffinity(0)))
    flags.add_argument("--busy-processes", type=at_least(0), default=0,
                       help="also measure next to this number of processes that keep a core busy each; default: none")
    flags.add_argument("--cold-start", action="store_true",
                       help="time the first step from the start of the process instead")


def check(arguments):
    on_gpu = arguments.device == "cuda"
    arguments.steps = arguments.steps or (100 if on_gpu else 1)
    if arguments.sides is None:
        second = "max-autotune:channels_last" if on_gpu else "eager:contiguous_format"
        arguments.sides = f"eager:channels_last,{second}"
    arguments.sides = [side for side in arguments.sides.split(",") if side]
    for side in arguments.sides:
        if side.partition(":")[2] not in FORMATS:
            arguments.error(f"--sides: found '{side}', expected MODE:FORMAT with the format {' or '.join(FORMATS)}")
