"""The ways in which an exercise is checked: its solution passes, its stub and its planted mistakes do not; the solution of a
variant passes, and the public one does not."""
import hashlib
import pathlib
import re
import shutil
import subprocess
import tempfile

from convoy_learn import checks
from convoy_learn.exercises import ROOT, Failure, compiler, emulator_sources, every, find

RECORD = ROOT / "tests" / "verified.txt"


def add_commands(add):
    command = add("verify", verify, "for authors: check that solution, stub and planted mistakes of exercises behave as stated")
    command.add_argument("exercise", nargs="*", help="names of exercises (default: all)")
    command.add_argument("--changed", action="store_true", help="the first exercise, and those that differ from the main branch")
    command.add_argument("--unless-recorded", action="store_true", help="not those that learn/tests/verified.txt has as they are")
    command.add_argument("--record", action="store_true", help="write those that are verified into learn/tests/verified.txt")


def verify(options):
    chosen = changed() if options.changed else [find(name) for name in options.exercise] if options.exercise else every()
    count, recorded = 0, read_record()
    for exercise in chosen:
        if options.unless_recorded and recorded.get(exercise.id) == version_of(exercise):
            print(f"{exercise.id}: recorded as verified", flush=True)
            continue
        problems = 0
        for problem in problems_of(exercise):
            problems += 1
            print(f"{exercise.id}: {problem}", flush=True)
        if not problems:
            print(f"{exercise.id}: verified", flush=True)
            if options.record:
                recorded[exercise.id] = version_of(exercise)
        count += problems
    if options.record:
        RECORD.write_text("".join(f"{name} {version}\n" for name, version in sorted(recorded.items())), encoding="utf-8")
    return 1 if count else 0


def read_record():
    """Returns {exercise: version} of the exercises that have been verified."""
    return dict(line.split() for line in RECORD.read_text(encoding="utf-8").splitlines()) if RECORD.exists() else {}


def version_of(exercise):
    """Returns a digest of all that the verification of an exercise depends on: its files, what all share, the emulator and
    the compiler's major version."""
    emulator = emulator_sources()
    paths = [exercise.driver, *exercise.directory.rglob("*"), *(ROOT / "common").rglob("*"), *(ROOT / "convoy_learn").glob("*.py")]
    for name in ("checking", "counting", "cuemu", "include", "program", "runtime"):
        paths += (emulator / name).rglob("*")
    digests = {hashlib.sha256(path.name.encode() + path.read_bytes()).digest()
               for path in paths if path.is_file() and "__pycache__" not in path.parts}
    version = subprocess.run([compiler(), "-dumpversion"], capture_output=True).stdout
    return hashlib.sha256(version + b"".join(sorted(digests))).hexdigest()[:16]


def changed():
    """Returns the first exercise, and those whose files differ from the main branch, where git knows it."""
    def git(*words):
        return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True).stdout.split()
    base = git("merge-base", "HEAD", "origin/HEAD") or ["HEAD"]
    files = {ROOT / file for file in git("diff", "--name-only", "--relative", base[0]) + git("ls-files", "--others", "--exclude-standard")}
    return [exercise for i, exercise in enumerate(every())
            if i == 0 or exercise.driver in files or any(exercise.directory in file.parents for file in files)]


def problems_of(exercise):
    """Yields what is not as exercise.toml states."""
    if exercise.secret() is None:
        raise Failure("found no solutions: this is the pack for students")
    verdict = checks.check_all(exercise, exercise.directory / f"solution{exercise.suffix}", [checks.public(exercise), exercise.secret()])
    if verdict.status != 0:
        yield f"solution{exercise.suffix}: found {verdict.lines[-1]}, expected solved"
    expected = [{"file": f"../stub{exercise.suffix}", "says": "", **exercise.settings["stub"]}, *exercise.settings["wrong"]]
    unlisted = {path.name for path in (exercise.directory / "wrong").glob(f"*{exercise.suffix}")} - {each["file"] for each in expected}
    if unlisted:
        yield f"wrong/{min(unlisted)} is not in exercise.toml"
    if not 1 <= len(exercise.hints()) <= 3:
        yield f"hints.md: found {len(exercise.hints())} hints, expected 1 to 3"
    seen = {}
    for each in expected:
        with tempfile.TemporaryDirectory(prefix="convoy-learn-") as work:  # with the name of the learner's file
            file = pathlib.Path(shutil.copyfile(exercise.directory / "wrong" / each["file"], pathlib.Path(work) / exercise.edit))
            verdict = checks.check(exercise, file)
        text = "\n".join(verdict.lines)
        if "variant" in exercise.settings and verdict.status == 1:
            continue  # the findings are stated for the public task
        if (verdict.status, verdict.code) != (1, each["finds"]):
            yield f"{each['file']}: found {verdict.code or verdict.lines[-1]}, expected {each['finds']}:\n{text}"
        elif not re.search(each["says"], text):
            yield f"{each['file']}: found no match of '{each['says']}' in:\n{text}"
        is_stub = each["file"].startswith("../")
        if not is_stub and verdict.message in seen:
            yield f"{each['file']} and {seen[verdict.message]} have the same message: {verdict.message}"
        if not is_stub:
            seen[verdict.message] = each["file"]
    for variant in exercise.variants():
        yield from (f"variant {variant}: {problem}" for problem in problems_of_variant(exercise, variant))


def problems_of_variant(exercise, variant):
    """Yields what is not right in a variant. The public solution must not pass."""
    with tempfile.TemporaryDirectory(prefix="convoy-learn-") as work:
        (pathlib.Path(work) / "common").symlink_to(ROOT / "common")
        other, unused = exercise.write(pathlib.Path(work) / "exercises" / exercise.id, variant)
        for text in sorted(unused):
            yield f"no file has '{text}'"
        verdict = checks.check(other, other.directory / f"solution{exercise.suffix}")
        if verdict.status != 0:
            yield f"solution.cu: found {verdict.lines[-1]}, expected solved"
        verdict = checks.check(other, exercise.directory / f"solution{exercise.suffix}")
        if verdict.status != 1:
            yield f"the public solution: found {verdict.lines[-1]}, expected a finding"
