"""Homework: packs of exercises for students and graders, and grades."""
import hashlib
import json
import pathlib
import re
import shutil
import tempfile
import tomllib

from convoy_learn import checks
from convoy_learn.exercises import ROOT, Failure, emulator_sources, find

# Parts of the points. Safety counts only if the values are right for one size: a kernel that does nothing is safe.
PARTS = {"safety": 0.3, "values": 0.4, "counts": 0.3}
TEMPLATES = ROOT / "packs"


def add_commands(add):
    grading = add("grade", grade, "grade a homework: points for safety, values and counts")
    grading.add_argument("homework", help="name of a homework, whose NAME.toml is in the current directory")
    grading.add_argument("--out", metavar="FILE", required=True, help="JSON file to write")
    grading.add_argument("--gradescope", action="store_true", help="write the format of Gradescope's results.json")
    grading.add_argument("--secret", action="store_true", help="with other sizes and values than those of the exercises")
    packing = add("pack", pack, "make a directory or a zip file of exercises for a class")
    packing.add_argument("homework", help="name of the homework, such as hw1")
    packing.add_argument("--exercises", required=True, help="exercises with commas, such as warm-1..3,mem-1")
    packing.add_argument("--points", help="points of each exercise with commas (default: those of the exercises)")
    packing.add_argument("--for", dest="reader", choices=["student", "grader"], required=True,
                         help="student: without solutions, planted mistakes and secret sizes; grader: with them")
    packing.add_argument("--secret", metavar="TEXT", help="other tasks, seeds and sizes than the public ones, chosen by a text that "
                         "only the teacher knows; the same for students and graders")
    packing.add_argument("--out", required=True, help="directory to make, or a name that ends with .zip")


def chosen_exercises(text):
    """Returns the exercises of "warm-1..3,mem-1"."""
    result = []
    for part in text.split(","):
        match = re.fullmatch(r"([a-z]+)-(\d+)\.\.(\d+)", part)
        result += [find(f"{match[1]}-{i}") for i in range(int(match[2]), int(match[3]) + 1)] if match else [find(part)]
    return result


def grade(options):
    path = pathlib.Path(f"{options.homework}.toml")
    if not path.is_file():
        raise Failure(f"found no {path} in the current directory; `convoy-learn pack` makes it")
    tests = []
    for item in tomllib.loads(path.read_text(encoding="utf-8"))["exercise"]:
        exercise, points = find(item["id"]), item["points"]
        if options.secret and exercise.secret() is None:
            raise Failure("found no secret sizes: this is the pack for students")
        file = pathlib.Path(exercise.id) / exercise.edit
        if not file.is_file():
            tests.append({"name": exercise.id, "score": 0, "max_score": points, "output": f"found no file {file}"})
            continue
        verdict = checks.check(exercise, file.resolve(), options.secret, is_isolated=True)
        tests.append({"name": exercise.id, "score": score(verdict, points), "max_score": points, "output": "\n".join(verdict.lines)})
    total, maximum = (sum(test[key] for test in tests) for key in ("score", "max_score"))
    result = {"tests": tests} if options.gradescope else {
        "homework": options.homework, "score": round(total, 2), "max_score": maximum, "exercises": tests}
    pathlib.Path(options.out).write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    for test in tests:
        print(f"{test['name']:<10} {test['score']:>6.2f} of {test['max_score']}   {test['output'].splitlines()[-1]}")
    print(f"{'sum':<10} {total:>6.2f} of {maximum}")
    return 0 if total == maximum else 1


def score(verdict, points):
    if verdict.status == 0:
        return points
    return round(points * sum(share for part, share in PARTS.items() if verdict.passed[part]), 2)


def pack(options):
    exercises = chosen_exercises(options.exercises)
    points = options.points.split(",") if options.points else [str(each.points) for each in exercises]
    if len(points) != len(exercises) or not all(each.isdigit() for each in points):
        raise Failure(f"found points '{options.points}', expected {len(exercises)} numbers with commas")
    if not re.fullmatch(r"\w+", options.homework):
        raise Failure(f"found name '{options.homework}', expected letters and digits")
    out = pathlib.Path(options.out)
    if out.exists():
        raise Failure(f"{out} exists already")
    with tempfile.TemporaryDirectory() as work:
        target = pathlib.Path(work) / options.homework
        write_pack(target, options, exercises, points)
        if out.suffix == ".zip":
            # Gradescope expects setup.sh at the top.
            top = (work, options.homework) if options.reader == "student" else (target, None)
            shutil.make_archive(str(out.with_suffix("")), "zip", *top)
        else:
            shutil.copytree(target, out)
    print(f"{out}: {len(exercises)} exercises, {sum(map(int, points))} points, for the {options.reader}")
    return 0


def secret_number(secret, exercise_id, what, count):
    """Returns a number below count: equal on every machine, and not to be guessed without the secret."""
    return int(hashlib.sha256(f"{secret}/{exercise_id}/{what}".encode()).hexdigest(), 16) % count


def secret_settings(secret, exercise):
    """Returns the text of a secret.toml with a seed, sizes from the ranges of the public one, [first, last, step] each, and
    then the sizes of the exercise. The public solution fails at the first one, so it is not called safe."""
    public = tomllib.loads((exercise.directory / "secret.toml").read_text(encoding="utf-8"))

    def drawn(key, number):
        return [first + step * secret_number(secret, exercise.id, f"{key} {number} {i}", (last - first) // step + 1)
                for i, (first, last, step) in enumerate(public[key])]
    lines = [f"seed = {secret_number(secret, exercise.id, 'seed', 1 << 30)}", f"sizes = {[drawn('draw', i) for i in range(4)] + exercise.sizes}"]
    return "\n".join(lines + ([f"count_at = {drawn('draw_count_at', 0)}"] if "draw_count_at" in public else [])) + "\n"


def write_exercise(exercise, directory, options):
    """Writes an exercise, or the variant that the secret chooses."""
    variants = sorted(exercise.variants()) if options.secret else []
    exercise.write(directory, variants[secret_number(options.secret, exercise.id, "variant", len(variants))] if variants else None)
    if options.reader == "student":
        for name in (f"solution{exercise.suffix}", "secret.toml"):
            (directory / name).unlink()
        shutil.rmtree(directory / "wrong")
    elif options.secret:
        (directory / "secret.toml").write_text(secret_settings(options.secret, exercise), encoding="utf-8")


def write_pack(target, options, exercises, points):
    """Writes the harness, cuemu and the exercises to target/convoy, and what a class needs next to it."""
    is_student = options.reader == "student"
    unneeded = shutil.ignore_patterns("__pycache__", "tests", "exercises", "book", "build")
    shutil.copytree(ROOT, target / "convoy" / "learn", ignore=unneeded)
    shutil.copytree(emulator_sources(), target / "convoy" / "emulator", ignore=unneeded)
    for exercise in exercises:
        directory = target / "convoy" / "learn" / "exercises" / exercise.id
        write_exercise(exercise, directory, options)
        (target / exercise.id).mkdir()
        shutil.copyfile(directory / f"stub{exercise.suffix}", target / exercise.id / exercise.edit)
    (target / f"{options.homework}.toml").write_text("".join(
        f'[[exercise]]\nid = "{each.id}"\npoints = {value}\n' for each, value in zip(exercises, points)), encoding="utf-8")
    rows = "\n".join(f"| {each.id} | {each.title} | {value} | `{each.id}/{each.edit}` |" for each, value in zip(exercises, points))
    names = " ".join(each.id for each in exercises)
    templates = ({"student.md": "README.md", "Makefile": "Makefile", "grade.yml": ".github/workflows/grade.yml"} if is_student
                 else {"setup.sh": "setup.sh", "run_autograder": "run_autograder"})
    for name, place in templates.items():
        path = target / place
        path.parent.mkdir(parents=True, exist_ok=True)
        text = (TEMPLATES / name).read_text(encoding="utf-8")
        for key, value in (("HOMEWORK", options.homework), ("EXERCISES", names), ("ROWS", rows)):
            text = text.replace(f"@{key}@", value)
        path.write_text(text, encoding="utf-8")
        path.chmod(0o644 if is_student else 0o755)
