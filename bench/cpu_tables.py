"""What measure_cpu.py measured as Markdown: goals.md and kernels.md of each machine, the tables in bench/README.md."""

import json
import pathlib

from comparison import Unavailable
from cpu_goals import STAGES

BENCH = pathlib.Path(__file__).resolve().parent
RESULTS, README = BENCH / "results", BENCH / "README.md"
BEGIN = "<!-- From here to the end mark by bench/measure_cpu.py --tables. -->"
END = "<!-- End. -->"


def read_entries(folder):
    """{stage: entry} of those that a folder of results has, in the stages' order."""
    entries = {}
    for stage in STAGES:
        file = folder / f"{stage.name}.json"
        entry = json.loads(file.read_text()) if file.exists() else {}
        if entry.get("stage") == stage.name:
            entries[stage.name] = entry
    return entries


def machine_of(entries):
    """What all of a folder's figures were measured on. Unavailable where they say different things."""
    machines = {f"{entry['processor']}, {entry['cores']} cores" for entry in entries.values()}
    if len(machines) > 1:
        raise Unavailable(f"figures of {len(machines)} machines in one folder: {'; '.join(sorted(machines))}")
    return machines.pop()


def rows_of(stage, entry):
    """[what, figure, target, outcome, entry] for each goal of a stage."""
    for goal in stage.goals:
        if entry["outcome"] == "measured":
            text, met = goal.row(entry["figures"])
            outcome = {True: "met", False: "**missed**", None: ""}[met]
        else:
            text, outcome = f"{entry['outcome']}: {entry['why']}", ""
        yield goal.what, text, goal.target(), outcome, entry


def one_line(text):
    return " ".join(str(text).split()).replace("|", "\\|")


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return lines + ["| " + " | ".join(one_line(cell) for cell in row) + " |" for row in rows]


def goals_text(entries):
    """goals.md: every figure with its command."""
    rows = [(what, text, target, outcome, f"`{entry['command']}`", entry["date"])
            for stage in STAGES if stage.name in entries
            for what, text, target, outcome, entry in rows_of(stage, entries[stage.name])]
    quick = ["", "A rehearsal in tiny sizes: the figures mean nothing."] if any(
        entry["quick"] for entry in entries.values()) else []
    return "\n".join([
        "# Goals on this CPU", "", f"{machine_of(entries)}. Written by `bench/measure_cpu.py` from the JSON files beside "
        "it; [how each is measured](../../README.md).", *quick, "",
        *table(("goal", "median (lowest to highest)", "target", "", "command", "measured"), rows), ""
    ])


def directions(benchmarks):
    """{network/op: {"forward" and "backward": row}} of the rows that convoy-bench-kernels has for ops."""
    ops = {}
    for row in benchmarks:
        network, *rest = row["name"].removesuffix("/manual_time").split("/")
        if rest:
            ops.setdefault((network, rest[0]), {})[rest[1]] = row
    return ops


def time_of(row):
    """Milliseconds, and the part of the ceiling; nothing where an op has no such direction."""
    if not row:
        return "", ""
    per_ms = {"ns": 1e6, "us": 1e3, "ms": 1, "s": 1e-3}[row["time_unit"]]
    return f"{row['real_time'] / per_ms:.3f}", f"{row['of_ceiling']:.2f}"


def kernels_text(entry):
    """kernels.md: what each op of the networks takes, and each kernel."""
    figures = entry["figures"]
    context, ops = figures["context"], directions(figures["benchmarks"])
    lines = ["# Ops and kernels on this CPU", "",
             f"{entry['processor']}, {entry['cores']} cores; {context['libraries']}; {context['precision']}, batch "
             f"{context['batch_size']}. Written by `bench/measure_cpu.py` from `kernels.json`; "
             "[what is counted](../../README.md#kernels-and-ops). "
             f"`{entry['command']}`, {entry['date']}.", "",
             f"Ceilings, measured first: copy {float(context['copy_GB/s']):.1f} GB/s, product "
             f"{float(context['product_GFLOP/s']):.1f} GFLOP/s."]
    for network in dict.fromkeys(network for network, _ in ops):
        rows = []
        for (of, op), row in ops.items():
            if of == network:
                forward, backward = row.get("forward"), row.get("backward")
                count = f"{(forward or backward)['per_step']:.0f}"
                rows.append((op, count, *time_of(forward), *time_of(backward)))
        lines += ["", f"## {network}", "",
                  *table(("op", "a step has", "forward, ms", "of ceiling", "backward, ms", "of ceiling"), rows)]
    kernels = [(row["name"].removesuffix("/manual_time"), f"{row['GB/s']:.1f}", f"{row['of_copy']:.2f}")
               for row in figures["benchmarks"] if "of_copy" in row]
    if kernels:
        lines += ["", "## Kernels", "", *table(("kernel", "GB/s", "of a copy"), kernels)]
    return "\n".join([*lines, ""])


def files_of(folder):
    """{name: text} of what is written beside a folder's JSON files."""
    entries = read_entries(folder)
    files = {"goals.md": goals_text(entries)} if entries else {}
    if entries.get("kernels", {}).get("outcome") == "measured":
        files["kernels.md"] = kernels_text(entries["kernels"])
    return files


def readme_tables(results):
    """The tables of all machines that measure_cpu.py has measured."""
    lines = []
    for folder in sorted(results.iterdir()):
        entries = read_entries(folder) if folder.is_dir() else {}
        if entries:
            rows = [row[:4] for stage in STAGES if stage.name in entries
                    for row in rows_of(stage, entries[stage.name])]
            has_ops = "kernels.md" in files_of(folder)
            ops = f" ([its ops and kernels](results/{folder.name}/kernels.md))" if has_ops else ""
            lines += ["", f"**[{folder.name}](results/{folder.name}/goals.md)**: {machine_of(entries)}{ops}", "",
                      *table(("goal", "median (lowest to highest)", "target", ""), rows)]
    return "\n".join([BEGIN, *lines, "", END])


def with_tables(readme, results):
    """The text of bench/README.md with the tables of today. Unavailable where it has no place for them."""
    before, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise Unavailable(f"bench/README.md: expected the lines '{BEGIN}' and '{END}'")
    return before + readme_tables(results) + after


def write_folder(folder):
    for name, text in files_of(folder).items():
        (folder / name).write_text(text)


def write_all(results=RESULTS, readme=README):
    for folder in sorted(results.iterdir()):
        if folder.is_dir():
            write_folder(folder)
    readme.write_text(with_tables(readme.read_text(), results))
