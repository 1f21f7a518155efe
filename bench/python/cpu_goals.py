"""The goals on the CPU: the command that measures each goal, and how its JSON is evaluated."""

from comparisons.harness import format_spread


class Goal:
    """A goal of a stage. `evaluate` returns the text of a result, and the number that must be at least `bound`, or at
    most; the number is None if the results have none."""

    def __init__(self, text, bound, evaluate, at_most=False):
        self.text, self.bound, self.evaluate, self.at_most = text, bound, evaluate, at_most

    def target(self):
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}"

    def row(self, figures):
        """Returns the text, and whether the goal is met; None if the results have no such number."""
        text, number = self.evaluate(figures)
        if number is None:
            return text, None
        return text, number <= self.bound if self.at_most else number >= self.bound


class Stage:
    """A command with its time limit in seconds and its requirements.

    In `command`, {data}, {out} and {mpirun} are replaced by the values of this machine. `quick_flags` are the
    additional flags of a rehearsal.
    """

    def __init__(self, name, seconds, requirements, command, quick_flags, goals, json_flag="--json"):
        self.name, self.seconds, self.requirements, self.goals = name, seconds, requirements, goals
        self.command, self.quick_flags, self.json_flag = command.split(), quick_flags.split(), json_flag
        self.is_comparison = self.command[0] == "compare.py"


def fastest_side(figures):
    """Returns the fastest PyTorch side; None if none was measured."""
    sides = {side: entry["images_per_second"] for side, entry in figures["sides"].items() if side != "convoy"}
    return max(sides, key=sides.get, default=None)


def not_compared(figures):
    return "not compared: " + "; ".join(f"{side}: {why}" for side, why in figures["left_out"].items())


def times_pytorch(figures):
    side = fastest_side(figures)
    if side is None:
        return not_compared(figures), None
    ratio = figures["ratios_by_round"][side]
    return (f"{format_spread(ratio)}; {figures['sides']['convoy']['images_per_second']:.1f} images/s vs "
            f"{figures['sides'][side]['images_per_second']:.1f}, PyTorch {figures['torch']} {side}"), ratio["median"]


def relative_to_idle(figures):
    shares = figures["relative_to_idle"]
    others = "; ".join(f"{side} {format_spread(share)}" for side, share in shares.items() if side != "convoy")
    return f"{format_spread(shares['convoy'])}; {others}", shares["convoy"]["median"]


def memory(part):
    """Returns the evaluation of the memory ratio. `part` is "whole" (whole processes) or "growth" (without libraries)."""

    def evaluate(figures):
        side = fastest_side(figures)
        ratios = figures.get("memory_ratios", {}).get(side)
        if not ratios:
            return "not compared", None

        def megabytes(name):
            entry = figures["sides"][name]
            begin = entry["start_resident_bytes"] if part == "growth" else 0
            return (entry["peak_resident_bytes"] - begin) / 1e6

        return f"{ratios[part]:.2f}; {megabytes('convoy'):.0f} MB vs {megabytes(side):.0f}", ratios[part]

    return evaluate


def cold_start(figures):
    ratio, seconds = figures["ratios_by_round"], figures["seconds"]
    return f"{format_spread(ratio)}; {seconds['convoy']:.2f} s vs {seconds['pytorch']:.2f}", ratio["median"]


def loader(ours):
    """Returns the evaluation of the ratios with the key `ours`, per core-second, for the faster PyTorch decoder."""

    def evaluate(figures):
        rates = {side: entry["images_per_core_second"]["median"] for side, entry in figures["sides"].items()
                 if side in figures["ratios_by_round"]}
        side = max(rates, key=rates.get, default=None)
        if side is None:
            return not_compared(figures), None
        ratio = figures[ours][side]["images_per_core_second"]
        epoch = "convoy, first epoch" if ours == "ratios_by_round" else "convoy, each later epoch"
        rate = figures["sides"][epoch]["images_per_core_second"]["median"]
        return (f"{format_spread(ratio)}; {rate:.0f} images/core-s vs {rates[side]:.0f}, torchvision "
                f"{figures['torchvision']}, {side}"), ratio["median"]

    return evaluate


def all_reduce(figures):
    row = figures["rows"][0]["in_place"]
    mpi = row["mpi"]
    return (f"{mpi['ratio']:.2f} ({mpi['lowest']:.2f} to {mpi['highest']:.2f}); {row['p50_us'] / 1e3:.1f} ms (p99 "
            f"{row['p99_us'] / 1e3:.1f}), MPI {mpi['time_us'] / 1e3:.1f}"), mpi["ratio"]


def ranks(figures):
    rates = figures["images_per_second"]
    return (f"{format_spread(figures['ratio'])}; {rates['ranks']['median']:.1f} images/s vs "
            f"{rates['threads']['median']:.1f}"), figures["ratio"]["median"]


def accuracy(figures):
    """Returns the difference in standard errors, which bounds the difference expected by chance."""
    difference, sides = figures["accuracy_difference"], figures["accuracy"]
    error = difference["standard_error"]
    text = (f"{100 * difference['mean']:+.2f} points, standard error {100 * error:.2f}; "
            f"{100 * sides['on']['mean']:.2f} % with, {100 * sides['off']['mean']:.2f} % without, "
            f"{figures['seeds']} seeds")
    return text, abs(difference["mean"]) / error if error else 0.0 if difference["mean"] == 0 else float("inf")


QUICK_STEP = ("--model lenet --image-size 32 --batch-size 10 --precision fp32 --steps 2 --windows 1 --warmup 1 "
              "--rounds 1")
QUICK_LOADER = "--data {out}/images --image-size 0 --batch-size 10 --epochs 1 --rounds 1 --workers 1 --sides pillow"

STAGES = (
    # No goal: kernels.md has the results.
    Stage("kernels", 600, (), "convoy-bench-kernels --benchmark_min_time=0.1",
          "--benchmark_min_time=0.001 --benchmark_filter=^lenet/|^copy --batch-size 2 --elements 100000", (),
          json_flag="--benchmark_out="),
    Stage("step_resnet18", 480, ("torch",), "compare.py step --model resnet18 --batch-size 128", QUICK_STEP, (
        Goal("ResNet-18 throughput, batch 128, fp32, relative to PyTorch", 2.4, times_pytorch),
        Goal("ResNet-18 process memory, relative to PyTorch", 0.7, memory("whole"), at_most=True),
        Goal("ResNet-18 process memory without libraries, relative to PyTorch", 0.7, memory("growth"), at_most=True),
    )),
    Stage("step_resnet18_bf16", 480, ("torch", "bf16"),
          "compare.py step --model resnet18 --batch-size 128 --precision bf16", QUICK_STEP, (
              Goal("ResNet-18 throughput, batch 128, bf16, relative to PyTorch", 1.5, times_pytorch),
          )),
    Stage("step_lenet_4", 180, ("torch",), "compare.py step --model lenet --batch-size 4 --steps 200", QUICK_STEP, (
        Goal("LeNet throughput, batch 4, relative to PyTorch", 4, times_pytorch),
    )),
    Stage("step_lenet_128", 180, ("torch",), "compare.py step --model lenet --batch-size 128 --steps 20", QUICK_STEP, (
        Goal("LeNet throughput, batch 128, relative to PyTorch", 3, times_pytorch),
    )),
    Stage("step_lenet_128_busy", 300, ("torch",),
          "compare.py step --model lenet --batch-size 128 --steps 20 --busy-processes 1", QUICK_STEP, (
              Goal("the same next to one busy process, relative to PyTorch", 3, times_pytorch),
              Goal("the same, relative to its speed without that process", 0.55, relative_to_idle),
          )),
    Stage("step_resnet18_busy", 480, ("torch",),
          "compare.py step --model resnet18 --batch-size 128 --busy-processes 1 --rounds 3", QUICK_STEP, (
              Goal("ResNet-18 throughput next to one busy process, relative to PyTorch", 3, times_pytorch),
              Goal("the same, relative to its speed without that process", 0.55, relative_to_idle),
          )),
    Stage("step_resnet50", 480, ("torch",),
          "compare.py step --model resnet50 --image-size 224 --batch-size 8 --windows 3 --warmup 2", QUICK_STEP, (
              Goal("ResNet-50 throughput, 224 pixels, batch 8, relative to PyTorch", 1.6, times_pytorch),
          )),
    Stage("loader", 900, ("torchvision", "cifar10"), "compare.py loader --data {data}/cifar10", QUICK_LOADER, (
        Goal("loader, CIFAR-10 as JPEG, first epoch, images/core-s, relative to PyTorch", 3, loader("ratios_by_round")),
        Goal("the same, later epochs, from memory", 3, loader("ratios_of_later_epochs")),
    )),
    Stage("loader_224", 600, ("torchvision", "flowers"), "compare.py loader --data {data}/flowers --image-size 224",
          QUICK_LOADER, (
              Goal("loader, photographs resized to 224 pixels, first epoch, images/core-s, relative to PyTorch", 3,
                   loader("ratios_by_round")),
              Goal("the same, later epochs, from memory", 3, loader("ratios_of_later_epochs")),
          )),
    Stage("allreduce", 120, ("mpirun",),
          "{mpirun} -n 2 convoy-bench-allreduce -b 44695848 -e 44695848 --beside-mpi --percentiles",
          "-b 1K -e 1K --iters 2 --rounds 1", (
              Goal("all-reduce of 44.7 MB, 2 ranks, in-place, speedup over MPI_Allreduce", 6, all_reduce),
          )),
    Stage("ranks", 480, ("mpirun",), "compare.py ranks --ranks 2 --model resnet18 --batch-size 128", QUICK_STEP, (
        Goal("throughput of 2 ranks of 1 thread, relative to 1 rank of 2 threads", 1.0, ranks),
    )),
    Stage("cold_start", 180, ("torch",), "compare.py step --model resnet18 --batch-size 128 --cold-start",
          "--model lenet --image-size 32 --batch-size 10 --rounds 1", (
              Goal("time from start to the end of the first step, relative to PyTorch", 0.25, cold_start, at_most=True),
          )),
    Stage("accuracy", 1800, ("cifar10",), "compare.py accuracy --data {data} --seeds 5 --max-steps 195",
          "--dataset folder --data {out}/images --model lenet --seeds 2 --max-steps 2 --batch-size 10", (
              Goal("ResNet-20 on CIFAR-10 for half an epoch: difference of test accuracies with and without "
                   "Winograd, in standard errors", 2, accuracy, at_most=True),
          )),
)
