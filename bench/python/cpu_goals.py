"""The goals on the CPU: the command that measures each goal, and how its JSON is evaluated."""

from comparison import format_spread


class Goal:
    """A goal of a stage. `judge` maps results to a text and the number that must be at least or at most `bound`."""

    def __init__(self, what, bound, judge, at_most=False, unit=""):
        self.what, self.bound, self.judge, self.at_most, self.unit = what, bound, judge, at_most, unit

    def target(self):
        return f"{'≤' if self.at_most else '≥'} {self.bound:g}{self.unit}"

    def row(self, figures):
        """Returns the text, and whether the goal is met; None if the results have no such number."""
        text, number = self.judge(figures)
        if number is None:
            return text, None
        return text, number <= self.bound if self.at_most else number >= self.bound


class Stage:
    """A command with its time limit in seconds and its requirements.

    In `words`, {data}, {out} and {mpirun} are replaced by the values of this machine. `quick` has the additional flags
    of a rehearsal.
    """

    def __init__(self, name, seconds, needs, words, quick, goals, json_flag="--json"):
        self.name, self.seconds, self.needs, self.goals, self.json_flag = name, seconds, needs, goals, json_flag
        self.words, self.quick = words.split(), quick.split()


def fastest_side(figures):
    """Returns the fastest PyTorch side; None if none was measured."""
    sides = {side: entry["images_per_second"] for side, entry in figures["sides"].items() if side != "convoy"}
    return max(sides, key=sides.get, default=None)


def why_none(figures):
    return "not compared: " + "; ".join(f"{side}: {why}" for side, why in figures["left_out"].items())


def times_pytorch(figures):
    side = fastest_side(figures)
    if side is None:
        return why_none(figures), None
    ratio = figures["ratios_by_round"][side]
    return (f"{format_spread(ratio)}; {figures['sides']['convoy']['images_per_second']:.1f} images/s vs "
            f"{figures['sides'][side]['images_per_second']:.1f}, PyTorch {figures['torch']} {side}"), ratio["median"]


def share_of_quiet(figures):
    shares = figures["share_of_quiet"]
    others = "; ".join(f"{side} {format_spread(share)}" for side, share in shares.items() if side != "convoy")
    return f"{format_spread(shares['convoy'])}; {others}", shares["convoy"]["median"]


def memory(part):
    """Returns a judge of the memory ratio. `part` is "whole" (whole processes) or "growth" (without libraries)."""

    def judge(figures):
        side = fastest_side(figures)
        ratios = figures.get("memory_ratios", {}).get(side)
        if not ratios:
            return "not compared", None

        def megabytes(name):
            entry = figures["sides"][name]
            begin = entry["start_resident_bytes"] if part == "growth" else 0
            return (entry["peak_resident_bytes"] - begin) / 1e6

        return f"{ratios[part]:.2f}; {megabytes('convoy'):.0f} MB vs {megabytes(side):.0f}", ratios[part]

    return judge


def layers(figures):
    return f"{format_spread(figures['share'])}; step {figures['step_ms']['median']:.0f} ms", figures["share"]["median"]


def cold_start(figures):
    ratio, seconds = figures["ratios_by_round"], figures["seconds"]
    return f"{format_spread(ratio)}; {seconds['convoy']:.2f} s vs {seconds['pytorch']:.2f}", ratio["median"]


def overhead(figures):
    mean, relu = figures["geometric_means"]["training_ns"], figures["cases"]["relu"]["training_ns"]
    return (f"{mean:.2f}; relu {relu['convoy']['median']:.0f} ns vs {relu['pytorch']['median']:.0f}, PyTorch "
            f"{figures['torch']}"), mean


def loader(ours):
    """Returns a judge of the ratios with the key `ours`, per core-second, for the faster PyTorch decoder."""

    def judge(figures):
        rates = {side: entry["images_per_core_second"]["median"] for side, entry in figures["sides"].items()
                 if side in figures["ratios_by_round"]}
        side = max(rates, key=rates.get, default=None)
        if side is None:
            return why_none(figures), None
        ratio = figures[ours][side]["images_per_core_second"]
        epoch = "convoy, first epoch" if ours == "ratios_by_round" else "convoy, each later epoch"
        rate = figures["sides"][epoch]["images_per_core_second"]["median"]
        return (f"{format_spread(ratio)}; {rate:.0f} images/core-s vs {rates[side]:.0f}, torchvision "
                f"{figures['torchvision']}, {side}"), ratio["median"]

    return judge


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


def exposed(begins):
    """Returns a judge of a goal that convoy-bench-overlap evaluates: {goal, most, found}."""

    def judge(figures):
        for goal in figures["goals"]:
            if goal["goal"].startswith(begins):
                return f"{100 * goal['found']:.2f} %", 100 * goal["found"]
        return "PyTorch's rule exposes nothing", None

    return judge


FAST, SLOW = "exposed at 475 GB/s", "exposed at 25 GB/s"
QUICK_STEP = ("--model lenet --image-size 32 --batch-size 10 --precision fp32 --steps 2 --windows 1 --warmup 1 "
              "--rounds 1")
QUICK_LOADER = "--data {out}/images --image-size 0 --batch-size 10 --epochs 1 --rounds 1 --workers 1 --sides pillow"

STAGES = (
    # No goal: kernels.md has the results.
    Stage("kernels", 600, (), "convoy-bench-kernels --benchmark_min_time=0.1",
          "--benchmark_min_time=0.001 --benchmark_filter=^lenet/|^copy --batch-size 2 --elements 100000", (),
          json_flag="--benchmark_out="),
    Stage("step_resnet18", 480, ("torch",), "compare_step.py --model resnet18 --batch-size 128", QUICK_STEP, (
        Goal("ResNet-18 throughput, batch 128, fp32, relative to PyTorch", 2.4, times_pytorch),
        Goal("ResNet-18 process memory, relative to PyTorch", 0.7, memory("whole"), at_most=True),
        Goal("ResNet-18 process memory without libraries, relative to PyTorch", 0.7, memory("growth"), at_most=True),
    )),
    Stage("layers", 180, (), "convoy-bench-layers --model resnet18 --batch-size 128",
          "--model resnet20 --batch-size 10 --rounds 1 --warmup 1", (
              Goal("ResNet-18 convolutions and batch norms in isolation, fraction of the step", 0.9, layers),
          )),
    Stage("step_resnet18_bf16", 480, ("torch", "bf16"),
          "compare_step.py --model resnet18 --batch-size 128 --precision bf16", QUICK_STEP, (
              Goal("ResNet-18 throughput, batch 128, bf16, relative to PyTorch", 1.5, times_pytorch),
          )),
    Stage("step_lenet_4", 180, ("torch",), "compare_step.py --model lenet --batch-size 4 --steps 200", QUICK_STEP, (
        Goal("LeNet throughput, batch 4, relative to PyTorch", 4, times_pytorch),
    )),
    Stage("step_lenet_128", 180, ("torch",), "compare_step.py --model lenet --batch-size 128 --steps 20", QUICK_STEP, (
        Goal("LeNet throughput, batch 128, relative to PyTorch", 3, times_pytorch),
    )),
    Stage("step_lenet_128_neighbour", 300, ("torch",),
          "compare_step.py --model lenet --batch-size 128 --steps 20 --neighbours 1", QUICK_STEP, (
              Goal("the same next to one busy process, relative to PyTorch", 3, times_pytorch),
              Goal("the same, relative to its speed without that process", 0.55, share_of_quiet),
          )),
    Stage("step_resnet18_neighbour", 480, ("torch",),
          "compare_step.py --model resnet18 --batch-size 128 --neighbours 1 --rounds 3", QUICK_STEP, (
              Goal("ResNet-18 throughput next to one busy process, relative to PyTorch", 3, times_pytorch),
              Goal("the same, relative to its speed without that process", 0.55, share_of_quiet),
          )),
    Stage("step_resnet50", 480, ("torch",),
          "compare_step.py --model resnet50 --image-size 224 --batch-size 8 --windows 3 --warmup 2", QUICK_STEP, (
              Goal("ResNet-50 throughput, 224 pixels, batch 8, relative to PyTorch", 1.6, times_pytorch),
          )),
    Stage("loader", 900, ("torchvision", "cifar10"), "compare_loader.py --data {data}/cifar10", QUICK_LOADER, (
        Goal("loader, CIFAR-10 as JPEG, first epoch, images/core-s, relative to PyTorch", 3, loader("ratios_by_round")),
        Goal("the same, later epochs, from memory", 3, loader("ratios_of_later_epochs")),
    )),
    Stage("loader_224", 600, ("torchvision", "flowers"), "compare_loader.py --data {data}/flowers --image-size 224",
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
    Stage("ranks", 480, ("mpirun",), "compare_ranks.py --ranks 2 --model resnet18 --batch-size 128", QUICK_STEP, (
        Goal("throughput of 2 ranks of 1 thread, relative to 1 rank of 2 threads", 1.0, ranks),
    )),
    Stage("cold_start", 180, ("torch",), "compare_step.py --model resnet18 --batch-size 128 --cold-start",
          "--model lenet --image-size 32 --batch-size 10 --rounds 1", (
              Goal("time from start to the end of the first step, relative to PyTorch", 0.25, cold_start, at_most=True),
          )),
    Stage("overhead", 180, ("torch",), "compare_overhead.py", "--rounds 1 --seconds 0.0005", (
        Goal("time of an operation on tiny tensors, forward and backward, relative to PyTorch, geometric mean", 0.2,
             overhead, at_most=True),
    )),
    Stage("accuracy", 1800, ("cifar10",), "compare_accuracy.py --data {data} --seeds 5 --max-steps 195",
          "--dataset folder --data {out}/images --model lenet --seeds 2 --max-steps 2 --batch-size 10", (
              Goal("ResNet-20 on CIFAR-10 for half an epoch: difference of test accuracies with and without "
                   "Winograd, in standard errors", 2, accuracy, at_most=True),
          )),
    Stage("overlap", 120, (), "convoy-bench-overlap --model resnet18 --steps 3 --record {out}/overlap_resnet18.json",
          "--model lenet --steps 1 --batch-size 10", (
              Goal("exposed communication at 475 GB/s, fraction of the step", 3, exposed(FAST), at_most=True,
                   unit=" %"),
              Goal("the same at 25 GB/s, relative to PyTorch's rule", 25, exposed(SLOW), at_most=True, unit=" %"),
          )),
    Stage("overlap_projected", 60, ("record",),
          "convoy-bench-overlap --replay {out}/overlap_resnet18.json --scale-to 1.5", "", (
              Goal("projection to a step of 1.5 ms: at 475 GB/s, fraction of the step", 3, exposed(FAST), at_most=True,
                   unit=" %"),
              Goal("the same at 25 GB/s, relative to PyTorch's rule", 25, exposed(SLOW), at_most=True, unit=" %"),
          )),
)
