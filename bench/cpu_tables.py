"""What measure_cpu.py measured as Markdown: goals.md of each machine, and the tables in bench/README.md."""

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


def readme_tables(results):
    """The tables of all machines that measure_cpu.py has measured."""
    lines = []
    for folder in sorted(results.iterdir()):
        entries = read_entries(folder) if folder.is_dir() else {}
        if entries:
            rows = [row[:4] for stage in STAGES if stage.name in entries
                    for row in rows_of(stage, entries[stage.name])]
            lines += ["", f"**[{folder.name}](results/{folder.name}/goals.md)**: {machine_of(entries)}", "",
                      *table(("goal", "median (lowest to highest)", "target", ""), rows)]
    return "\n".join([BEGIN, *lines, "", END])


def with_tables(readme, results):
    """The text of bench/README.md with the tables of today. Unavailable where it has no place for them."""
    before, found, rest = readme.partition(BEGIN)
    _, ended, after = rest.partition(END)
    if not found or not ended:
        raise Unavailable(f"bench/README.md: expected the lines '{BEGIN}' and '{END}'")
    return before + readme_tables(results) + after


def write_goals(folder):
    entries = read_entries(folder)
    if entries:
        (folder / "goals.md").write_text(goals_text(entries))


def write_all(results=RESULTS, readme=README):
    for folder in sorted(results.iterdir()):
        if folder.is_dir():
            write_goals(folder)
    readme.write_text(with_tables(readme.read_text(), results))
