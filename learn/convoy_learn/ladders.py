"""Ladders: the same result in several steps, each counted. The rungs are solutions, and planted mistakes, of exercises."""
import json
import pathlib
import tempfile
import tomllib

from convoy_learn import checks, runs
from convoy_learn.exercises import ROOT, Failure, find

COLUMNS = [("load sectors", "global_loads.sectors"), ("store sectors", "global_stores.sectors"),
           ("shared requests", "shared_loads.requests"), ("shared wavefronts", "shared_loads.wavefronts"), ("barriers", "barriers")]


def names():
    return sorted(path.stem for path in (ROOT / "ladders").glob("*.toml"))


def count(exercise, file, sizes):
    """Returns the counts of one case as {"barriers": 9, …}."""
    with tempfile.TemporaryDirectory(prefix="convoy-learn-") as work:
        program = runs.compile_program(exercise, file, work)
        report = runs.run(program, checks.ORDERS[0], 1, [sizes], exercise, is_counted=True)
    if not report.is_complete:
        raise Failure(f"{file.name} of {exercise.id} does not give the right values: {report.wrong}")
    result = {what: checks.measure(what, report.launches) for _, what in COLUMNS}
    requests = result["shared_loads.requests"]
    result["shared_loads.lanes_per_request"] = round(checks.measure("shared_loads.lanes", report.launches) / requests, 1) if requests else 0
    return result


def ladder(options):
    path = ROOT / "ladders" / f"{options.name}.toml"
    if not path.exists():
        raise Failure(f"found ladder '{options.name}', expected one of: {' '.join(names())}")
    settings = tomllib.loads(path.read_text(encoding="utf-8"))
    rungs = [(rung, find(rung["exercise"])) for rung in settings["rung"]]
    missing = [rung for rung, exercise in rungs if not (exercise.directory / rung["file"]).exists()]
    if missing:
        raise Failure(f"found no {missing[0]['file']} of {missing[0]['exercise']}: a pack for students has no solutions")
    print(f"{settings['title']}\n{'':<26}" + "".join(f"{name:>19}" for name, _ in COLUMNS) + f"{'lanes':>7}", flush=True)
    found = {}
    for rung, exercise in rungs:
        counts = found[rung["name"]] = count(exercise, (exercise.directory / rung["file"]).resolve(), rung["at"])
        print_row(rung["name"], counts)
        own = pathlib.Path(exercise.id) / exercise.edit
        if rung["file"] == "solution.cu" and own.is_file():
            try:
                print_row(f"  your {exercise.id}", count(exercise, own.resolve(), rung["at"]))
            except (runs.NotCompiled, Failure):
                print(f"  your {exercise.id}: not right yet")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    return 0


def print_row(name, counts):
    lanes = counts["shared_loads.lanes_per_request"]
    print(f"{name:<26}" + "".join(f"{counts[what]:>19,}" for _, what in COLUMNS) + (f"{lanes:>7.1f}" if lanes else ""), flush=True)
