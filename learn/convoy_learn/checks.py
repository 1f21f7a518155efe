"""What `check` decides from the runs of a program: findings, values, counts, in this order."""
import pathlib
import tempfile

from convoy_learn import runs
from convoy_learn.exercises import size_text

ORDERS = ["ascending", "descending", "random:1", "random:2"]
# Findings that come before wrong values, of which they are the cause; others come after.
CAUSES = ["CE003", "CE004", "CE005", "CE102", "CE103", "CE101", "CE002"]
KINDS = {"global_loads": "global load", "global_stores": "global store", "shared_loads": "shared load",
         "shared_stores": "shared store"}


class Verdict:
    """`status`: 0 solved, 1 not yet, 2 does not compile. `code` and `message` tell why. `lines`: all that is printed."""

    def __init__(self, exercise):
        self.exercise, self.status, self.code, self.message = exercise, 0, None, ""
        self.lines, self.counts = [], {}
        self.passed = {"safety": False, "values": False, "counts": False}

    def add(self, what, text):
        self.lines.append(f"{what:<8} {text}")

    def fail(self, code, message, details=()):
        self.status, self.code, self.message = 1, code, message
        self.lines += [f"   {detail}" for detail in details]
        self.lines.append(f"not yet [{code}]: {message}")


def check(exercise, file, is_secret=False, is_isolated=False):
    """Compiles and checks a solution, for the sizes of the exercise or for secret ones. Returns a Verdict."""
    return check_all(exercise, file, [exercise.secret() if is_secret else public(exercise)], is_isolated)


def public(exercise):
    return {"seed": 1, "sizes": exercise.sizes, "counts": exercise.counts}


def check_all(exercise, file, all_given, is_isolated=False):
    """The same for each of several seeds with their sizes and counts."""
    verdict = Verdict(exercise)
    prefix = runs.isolation() if is_isolated else []
    with tempfile.TemporaryDirectory(prefix="convoy-learn-") as work:
        try:
            program = runs.compile_program(exercise, file, work)
        except runs.NotCompiled as error:
            verdict.status, verdict.message = 2, "does not compile"
            verdict.lines = str(error).splitlines() + ["does not compile"]
            return verdict
        for given in all_given:
            run_and_judge(verdict, program, given, file, prefix)
            if verdict.status != 0:
                return verdict
    verdict.passed["counts"] = True
    verdict.lines.append("solved")
    return verdict


def run_and_judge(verdict, program, given, file, prefix):
    """Runs the program in each order, then for the counts, until something is wrong."""
    exercise = verdict.exercise
    orders = ORDERS[:1] if exercise.is_program else ORDERS
    for order in orders:
        report = runs.run(program, order, given["seed"], given["sizes"], exercise, prefix=prefix)
        judge(verdict, report, order, file)
        if verdict.code == "CE104":
            counted = runs.run(program, order, given["seed"], [report.case], exercise, is_counted=True, prefix=prefix)
            explain_order(verdict, counted.launches)
        if verdict.status != 0:
            return
    verdict.passed.update(safety=True, values=True)
    verdict.add("values", f"{len(given['sizes'])} sizes{'' if exercise.is_program else f' x {len(ORDERS)} orders of threads'}: right")
    verdict.add("safety", "bounds, overflow: no finding" if exercise.is_program else
                "bounds, uninitialized memory, barriers, races: no finding")
    for at in sorted({tuple(count["at"]) for count in given["counts"]}):
        report = runs.run(program, ORDERS[0], given["seed"], [at], exercise, is_counted=True, prefix=prefix)
        variables = dict(zip(exercise.names, at))
        for count in (count for count in given["counts"] if tuple(count["at"]) == at):
            judge_count(verdict, count, report.launches, variables, file)
            if verdict.status != 0:
                return


def judge(verdict, report, order, file):
    """Judges the run in one order."""
    findings = {finding["code"]: finding for finding in reversed(report.findings)}  # the first of each code

    def text(sizes):
        return size_text(verdict.exercise, sizes) if sizes else "before the first case"
    case = text(report.case)
    in_order = "" if verdict.exercise.is_program else f", {order} order of threads"
    if report.stated:
        verdict.passed["safety"] = report.right > 0
        return verdict.fail(report.stated[0], f"{report.stated[1]} ({case})")
    first = next((findings[code] for code in CAUSES if code in findings), None)
    if first is None and (report.wrong or not report.is_complete):
        verdict.passed["safety"] = report.right > 0
        if report.is_late:
            return verdict.fail("CE008", f"the {'program' if verdict.exercise.is_program else 'kernel'} does not end ({case}{in_order})")
        if not report.wrong:
            return verdict.fail("CE008", f"the program ended with status {report.status} before its results ({case})")
        if order != ORDERS[0]:
            return verdict.fail("CE105", f"right in {ORDERS[0]} order of threads, wrong in {order} order for {case}: {report.wrong}")
        return verdict.fail("CE001", f"wrong for {case}: {report.wrong}")
    first = first or next(iter(report.findings), None)
    if first is not None:
        verdict.fail(first["code"], f"{first['place']}: {first['message']} ({text(first['case'])}{in_order})",
                     [source_line(first["place"], file)])
    return None


def explain_order(verdict, launches):
    """Adds what could order the blocks."""
    why = ("no atomic operation tells a block that another one has finished" if measure("atomics", launches) == 0 else
           "a __threadfence() is missing between the store and the atomic operation, or between this and the load")
    verdict.message += f"; {why}"
    verdict.lines[-1] += f"; {why}"


def source_line(place, file):
    """Returns "sum.cu:9   s[t] += …;" for a line of the learner's file."""
    name, _, line = place.rpartition(":")
    lines = pathlib.Path(file).read_text(encoding="utf-8").splitlines()
    is_here = name == pathlib.Path(file).name and line.isdigit() and 0 < int(line) <= len(lines)
    return f"{place}   {lines[int(line) - 1].strip()}" if is_here else place


def measure(what, launches):
    """Returns a count summed over the launches: "barriers", or "shared_loads.wavefronts". "exchanges": the pairs of kernels of
    which each has directly followed the other one."""
    if what == "exchanges":
        names = [launch["kernel"] for launch in launches]
        pairs = set(zip(names, names[1:]))
        return sum(first < second and (second, first) in pairs for first, second in pairs)
    kind, _, unit = what.partition(".")
    return sum(launch[kind][unit] if unit else launch[kind] for launch in launches if kind in launch)


def judge_count(verdict, count, launches, variables, file):
    goal = "at_most" if "at_most" in count else "equals"
    limit = count[goal]
    if isinstance(limit, str):  # of the exercise's author
        limit = eval(limit, {"__builtins__": {}}, variables)
    actual = measure(count["what"], launches)
    verdict.counts[count["what"]] = actual
    kind, _, unit = count["what"].partition(".")
    name = f"{unit} of {KINDS[kind]}s" if unit else kind.replace("_", " ")
    verdict.add("counts", f"{size_text(verdict.exercise, count['at'])}: {name} {actual:,.10g}, goal "
                          f"{'at most ' if goal == 'at_most' else ''}{limit:,.0f}")
    if actual <= limit if goal == "at_most" else actual == limit:
        return None
    if verdict.exercise.is_program:
        expected = f"{'at most ' if goal == 'at_most' else ''}{limit:,.10g}"
        return verdict.fail(count["code"], f"{name} {actual:,.10g}, expected {expected}: {count['because']}")
    message, place = EXPLANATIONS[count["code"]](kind, launches)
    details = [source_line(place, file)] if place else []
    return verdict.fail(count["code"], f"{place + ': ' if place else ''}{message}", [*details, count["because"]])


def sites(kind, launches):
    """Returns the counts of one kind of access by line, as [(place, counts)]."""
    found = {}
    for launch in launches:
        for site in launch["sites"]:
            into = found.setdefault(site["place"], dict.fromkeys(site[kind], 0))
            for unit, value in site[kind].items():
                into[unit] += value if isinstance(value, int) else 0
    return [(place, counts) for place, counts in found.items() if counts["requests"] > 0]


def sectors_apart(kind, launches):
    place, at = max(sites(kind, launches), key=lambda site: 32 * site[1]["sectors"] - site[1]["bytes"])
    requests = at["requests"]
    return (f"a {KINDS[kind]} of a warp asks for {at['bytes'] / requests:,.0f} bytes and moves {at['sectors'] / requests:.1f} "
            f"sectors of 32 bytes ({32 * at['sectors'] / requests:,.0f} bytes); neighboring lanes are apart", place)


def bank_conflicts(kind, launches):
    place, at = max(sites(kind, launches), key=lambda site: site[1]["wavefronts"] - site[1]["minimum"])
    return (f"a {KINDS[kind]} of a warp takes {at['wavefronts'] / at['requests']:.2f} wavefronts, "
            f"{at['minimum'] / at['requests']:.2f} would do; its words are in the same banks", place)


def few_lanes(kind, launches):
    place, at = max(sites(kind, launches), key=lambda site: 32 * site[1]["requests"] - site[1]["lanes"])
    return f"{at['lanes'] / at['requests']:.1f} of 32 lanes work on average in a {KINDS[kind]}; the others wait for them", place


def read_often(kind, launches):
    place, _ = max(sites(kind, launches), key=lambda site: site[1]["sectors"])
    moved, distinct = 32 * measure(f"{kind}.sectors", launches), measure("bytes_read", launches)
    return (f"{KINDS[kind]}s move {moved:,} bytes, {moved / distinct:.1f} times the {distinct:,} different bytes that the kernel reads; "
            "a tile in shared memory serves all threads of a block", place)


def many_requests(kind, launches):
    place, at = max(sites(kind, launches), key=lambda site: site[1]["requests"])
    return (f"{at['requests']:,} of {measure(f'{kind}.requests', launches):,} requests of {KINDS[kind]}s; "
            "a value that only its own thread needs belongs into a register", place)


def many_barriers(_, launches):
    blocks = sum(launch["grid"][0] * launch["grid"][1] * launch["grid"][2] for launch in launches)
    return f"{measure('barriers', launches):,} barriers of {blocks} blocks; all threads of a block wait at each", ""


def many_passes(kind, launches):
    moved, distinct = 32 * measure(f"{kind}.sectors", launches), measure("bytes_read", launches)
    times = f", {moved / distinct:.1f} times the {distinct:,} different bytes that they read" if kind == "global_loads" else ""
    return (f"{len(launches)} launch{'es' if len(launches) > 1 else ''}: the {KINDS[kind]}s of all move {moved:,} bytes{times}; what stays in "
            "a register is neither stored nor loaded", "")


def one_order(_, launches):
    names = dict.fromkeys(launch["kernel"] for launch in launches)
    return f"{len(launches):,} launches, always in the order {', '.join(names)}", ""


EXPLANATIONS = {"CE201": sectors_apart, "CE202": bank_conflicts, "CE203": few_lanes, "CE204": read_often, "CE205": many_barriers,
                "CE206": many_requests, "CE207": many_passes, "CE208": one_order}
