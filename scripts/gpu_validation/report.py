"""Formats the JSON file of a validation as Markdown."""

from gpu_validation import work  # noqa: F401, puts bench/python on the path
from comparisons import harness

MAX_CELL = 300  # characters


def table(head, rows):
    return ["", *harness.table(head, [[str(cell)[:MAX_CELL] for cell in row] for row in rows])]


def number(value, digits=2):
    return "not measured" if value is None else f"{value:,.{digits}f}" if value < 1000 else f"{value:,.0f}"


def outcome(entry):
    what = entry.get("problems", []) + entry.get("left_out", [])
    return entry["outcome"] + (": " + "; ".join(what) if what else "")


def goals(stages):
    rows = []
    for name, entry in stages.items():
        for what, measured, goal, reached in entry.get("found", {}).get("goals", []):
            rows.append([name, what, number(measured), number(goal), {True: "yes", False: "no", None: ""}[reached]])
    if rows:
        return ["", "## Goals"] + table(("stage", "figure", "measured", "goal", "reached"), rows)
    return []


def machine(found):
    return ["", "## Machine"] + table(("", ""), found.items())


def smoke(found):
    return ["", "## Short trainings"] + table(
        ("training", "steps", "first loss", "last loss", "images/s"),
        [(name, entry["steps"], f"{entry['first_loss']:.4g}", f"{entry['last_loss']:.4g}",
          number(entry["images_per_second"], 0)) for name, entry in found.items()])


def tests(found):
    return ["", "## Tests on the device"] + table(
        ("program", "run", "failed", "skipped"),
        [(name, entry["tests"], len(entry["failed"]), len(entry["skipped"])) for name, entry in found.items()])


def sanitizer(found):
    return ["", "## compute-sanitizer"] + table(
        ("check", "tests", "summary"), [(name, entry["tests"], entry["summary"]) for name, entry in found.items()])


def training(found):
    lines = ["", "## Trainings"]
    compared = {name: entry for name, entry in found.items() if "tolerance" in entry}
    equal = {name: entry for name, entry in found.items() if "parameters_hash" in entry}
    if compared:
        lines += table(("runs", "steps", "losses differ by at most", "allowed"),
                       [(name, entry["steps"], f"{entry['worst_relative_difference']:.1e}", f"{entry['tolerance']:.0e}")
                        for name, entry in compared.items()])
    if equal:
        lines += table(("runs", "steps", "parameters"),
                       [(name, entry["steps"], entry["parameters_hash"]) for name, entry in equal.items()])
    return lines


def losses(found):
    lines = [
        "", "## Losses compared with PyTorch", "", "Relative errors against PyTorch in double precision, after all steps."
    ]
    return lines + table(
        ("", "steps", "loss", "PyTorch's", "parameters", "PyTorch's", "agree"),
        [(name, entry["steps"], f"{entry['loss_error']:.1e}", f"{entry['loss_error_pytorch']:.1e}",
          f"{entry['state_error']:.1e}", f"{entry['state_error_pytorch']:.1e}", "yes" if entry["agree"] else "no")
         for name, entry in found.items()])


def bandwidth(found):
    lines = []
    if "kernels" in found:
        lines += ["", "## Kernels", "", f"A copy moves {found['copy_GB/s']} GB/s (bytes read and written)."]
        lines += table(("kernel", "GB/s", "of the copy", "goal"),
                       [(name, f"{row['GB/s']:.0f}", f"{row['of_copy']:.2f}", f"{row['goal']:.2f}")
                        for name, row in found["kernels"].items()])
    if "ops" in found:
        lines += ["", "## Ops of ResNet-18, bf16, batch 128"]
        lines += table(("op", "GB/s", "GFLOP/s", "of the ceiling"),
                       [(name, f"{row['GB/s']:.0f}", f"{row['GFLOP/s']:.0f}", f"{row['of_ceiling']:.2f}")
                        for name, row in found["ops"].items()])
    return lines


def counters(found):
    def ratio(value):
        return "" if value is None else f"{value:.3f}"

    lines = ["", "## Counted and measured accesses", "",
             "One step of ResNet-18, bf16, batch 128, as one CUDA graph. Counted on an emulated GPU, then measured by "
             "Nsight Compute. Bytes are distinct bytes, then those of the GPU's memory, which are less where the "
             "second-level cache still has an array. Requests, sectors and wavefronts are measured over counted."]
    return lines + table(
        ("kernel, blocks x threads", "launches", "MB", "us predicted", "us measured", "requests", "sectors",
         "wavefronts"),
        [(row["name"], "{} / {}".format(*row["launches"]), "{:.1f} / {:.1f}".format(*row["megabytes"]),
          f"{row['us'][0]:.1f}", f"{row['us'][1]:.1f}", ratio(row["requests"]), ratio(row["sectors"]),
          ratio(row["wavefronts"])) for row in found.get("rows", [])])


def nccl(found):
    lines = ["", "## Ranks that share one GPU through NCCL"]
    if "conformance" in found:
        lines += table(("ranks", "cases", "failures"),
                       [(ranks, entry["cases"], len(entry["failed"])) for ranks, entry in found["conformance"].items()])
    if "training" in found:
        lines += table(("2 ranks compared with 1", "steps", "losses differ by at most", "allowed"),
                       [(name, entry["steps"], f"{entry['worst_relative_difference']:.1e}", f"{entry['tolerance']:.0e}")
                        for name, entry in found["training"].items()])
    return lines


def hypothesis(found):
    what = "Median over alternating pairs of commands; the ratio is the time of A over that of B."
    return ["", "## Hypotheses", "", what] + table(
        ("hypothesis", "A, ms", "B, ms", "ratio", "lowest", "highest", "pairs", "expected", "verdict"),
        [(name, number(entry["a"]["ms"], 3), number(entry["b"]["ms"], 3), number(entry["ratio"], 3),
          number(entry["lowest"], 3), number(entry["highest"], 3), entry["pairs"], number(entry["expected"], 3),
          entry["verdict"]) for name, entry in found.items()])


def hopper(found):
    return ["", "## The convolution of Hopper that is not part of the product", ""] + table(
        ("layer and direction", "us", "cuDNN, us", "times as fast"),
        [(name, number(entry["us"], 2), number(entry["cudnn us"], 2), number(entry["ratio"], 2)) for name, entry in found.items()])


def timeline(found):
    lines = ["", "## Timelines of one replay"] + table(
        ("step", "kernels", "streams", "us", "idle", "one kernel", "several"),
        [(name, entry["kernels"], entry["streams"], number(entry["us"], 0), number(entry["idle_us"], 0),
          number(entry["one_us"], 0), number(entry["several_us"], 0)) for name, entry in found.items()])
    return lines + table(("step", "kernel", "launches", "us"),
                         [(name, kernel, launches, number(us, 1)) for name, entry in found.items()
                          for kernel, (launches, us) in entry["longest"].items()])


def rate(found):
    lines = [
        "", f"## {found['model']}, {found['image_size']} pixels, batch {found['batch_size']}, {found['precision']}"
    ]
    if "stored" in found:
        lines += ["", f"PyTorch {found['stored']['torch']} as measured on {found['stored']['date']}."]
    lines += table(
        ("side", "images/s", "lowest", "highest", "rounds", "peak memory, MB", "Convoy's rate over it"),
        [(side, number(entry["images_per_second"], 0), number(entry["lowest"], 0), number(entry["highest"], 0),
          entry["rounds"], number(entry["peak_bytes"] / 1e6, 0), number(found["ratios"].get(side, 1.0)))
         for side, entry in found["sides"].items()])
    return lines


def cold_start(found):
    return ["", "## From the start of the process to the end of the first step"] + table(
        ("side", "seconds"), [(side, number(seconds)) for side, seconds in found["seconds"].items()])


SECTIONS = {"environment": machine, "smoke": smoke, "tests": tests, "sanitizer": sanitizer, "training": training,
            "losses": losses, "hypothesis": hypothesis, "hopper": hopper, "timeline": timeline, "racecheck": sanitizer,
            "bandwidth": bandwidth, "counters": counters, "nccl": nccl, "cold_start": cold_start}


def markdown(results):
    stages = results["stages"]
    lines = [f"# {results['gpu']}", "",
             f"`scripts/validate_gpu.sh`, {results['date']}, {results['version']}" +
             (", a rehearsal with tiny sizes: the figures mean nothing." if results.get("quick") else ".")]
    lines += table(("stage", "outcome", "seconds"), [(name, outcome(entry), f"{entry['seconds']:.0f}")
                                                     for name, entry in stages.items()])
    lines += goals(stages)
    for name, entry in stages.items():
        section = rate if name.startswith("rate_") else SECTIONS.get(name)
        if section and entry.get("found"):
            lines += section(entry["found"])
    return "\n".join(lines) + "\n"
