"""convoy-learn: exercises in CUDA and C++ that a machine checks, without a GPU. Needs g++ and Python."""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile

from convoy_learn import checks, exercises, ladders, packs, runs, verification
from convoy_learn.exercises import Failure

SOLVED, NOT_YET, NOT_COMPILED, HARNESS = 0, 1, 2, 3  # exit status


def list_(_options):
    for exercise in exercises.every():
        state = exercises.state(exercise.id)
        text = "solved" if state.get("solved") else "started" if state or pathlib.Path(exercise.id).exists() else ""
        print(f"{exercise.id:<10} chapter {exercise.chapter:<3} {exercise.points:>3} points  {exercise.title:<44} {text}".rstrip())
    return SOLVED


def start(options):
    exercise = exercises.find(options.exercise)
    target = pathlib.Path(options.directory) / exercise.id / exercise.edit
    if target.exists():
        raise Failure(f"{target} exists already; remove it to begin again")
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(exercise.directory / f"stub{exercise.suffix}", target)
    print(f"{exercise.id}: {exercise.title}\n{exercise.goal}\nEdit {target}, then: convoy-learn check {exercise.id}")
    if exercise.settings.get("needs"):
        print(f"It builds on {' and '.join(exercise.settings['needs'])}.")
    return SOLVED


def check(options):
    exercise = exercises.find(options.exercise)
    file = exercise.learner_file(options.file)
    if options.secret and exercise.secret() is None:
        raise Failure("found no secret sizes: this is the pack for students")
    verdict = checks.check(exercise, file, options.secret)
    print("\n".join(verdict.lines))
    state = exercises.state(exercise.id)
    if not options.secret:
        exercises.update_state(exercise.id, solved=verdict.status == 0, code=verdict.code, message=verdict.message, counts=verdict.counts)
    if verdict.status == 1:
        print(f"convoy-learn explain {verdict.code} tells more; convoy-learn hint {exercise.id} "
              f"({state.get('hints', 0)} of {len(exercise.hints())} used)")
    return verdict.status


def hint(options):
    exercise = exercises.find(options.exercise)
    hints = exercise.hints()
    number = min(exercises.state(exercise.id).get("hints", 0), len(hints) - 1)
    exercises.update_state(exercise.id, hints=number + 1)
    print(f"hint {number + 1} of {len(hints)}: {hints[number]}")
    return SOLVED


def explain(options):
    page = exercises.ROOT / "findings" / f"{options.code}.md"
    if page.is_file():
        print(page.read_text(encoding="utf-8"), end="")
        return SOLVED
    done = subprocess.run([*exercises.cuemu(), "explain", options.code], capture_output=True, text=True)
    if done.returncode != 0:
        own = " ".join(sorted(path.stem for path in page.parent.glob("CE*.md")))
        raise Failure(f"{done.stderr.strip().removeprefix('cuemu explain: ')}, or of: {own}")
    print(done.stdout, end="")
    return SOLVED


def parse_sizes(exercise, text):
    """Returns [37, 65] for "37x65"; without a text, the sizes at which the exercise counts."""
    if text is None:
        return exercise.counts[0]["at"] if exercise.counts else exercise.sizes[-1]
    parts = text.split("x")
    if len(parts) != len(exercise.names) or not all(part.isdigit() and int(part) > 0 for part in parts):
        raise Failure(f"found sizes '{text}', expected {'x'.join(exercise.names)}, such as {'x'.join(map(str, exercise.sizes[-1]))}")
    return [int(part) for part in parts]


def of_kernel(name):
    """Returns an exercise that has a kernel."""
    exercise = exercises.find(name)
    if exercise.is_program:
        raise Failure(f"{name} is plain C++, expected an exercise with a kernel")
    return exercise


def show(options):
    exercise = of_kernel(options.exercise)
    sizes = parse_sizes(exercise, options.at)
    print(exercises.size_text(exercise, sizes), flush=True)
    with tempfile.TemporaryDirectory(prefix="convoy-learn-") as work:
        source = runs.write_program(exercise, exercise.learner_file(options.file), work)
        return subprocess.run([*exercises.cuemu(), "count", str(source), *runs.arguments(1, [sizes])]).returncode


def debug(options):
    exercise = of_kernel(options.exercise)
    sizes = parse_sizes(exercise, options.at)
    with tempfile.TemporaryDirectory(prefix="convoy-learn-") as work:
        source = runs.write_program(exercise, exercise.learner_file(options.file), work)
        return subprocess.run([*exercises.cuemu(), "debug", "--kernel", exercise.kernel, "--block", options.block,
                               "--thread", options.thread, *(f"--gdb={command}" for command in options.gdb), str(source),
                               *runs.arguments(1, [sizes])]).returncode


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(HARNESS, f"{self.prog}: {message}\n")


def parser():
    result = Parser(prog="convoy-learn", description=__doc__, epilog="exit status of check: 0 solved, 1 not yet, 2 does not compile, "
                    "3 the harness cannot tell")
    commands = result.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(name, function, help_, has_file=False):
        command = commands.add_parser(name, help=help_, description=help_)
        command.set_defaults(function=function)
        if has_file:
            command.add_argument("exercise", help="name of an exercise, such as warm-1")
            command.add_argument("file", nargs="?", help="your solution (default: where start has put it)")
        return command

    def add_at(command):
        command.add_argument("--at", metavar="SIZES", help="sizes of the case, such as 257 or 37x65")

    add("list", list_, "list the exercises and which of them are solved")
    starting = add("start", start, "copy the file that you complete")
    starting.add_argument("exercise", help="name of an exercise, such as warm-1")
    starting.add_argument("directory", nargs="?", default=".", help="where to make the exercise's directory (default: here)")
    add("check", check, "check a solution; stops at the first finding", has_file=True).add_argument(
        "--secret", action="store_true", help="with other sizes and values than those of the exercise")
    add("hint", hint, "print the next hint").add_argument("exercise", help="name of an exercise, such as warm-1")
    add("explain", explain, "tell what the code of a finding means").add_argument("code", help="code, such as CE101")
    add_at(add("show", show, "print what each line of a solution accesses", has_file=True))
    climbing = add("ladder", ladders.ladder, "count the steps from a slow kernel to a fast one")
    climbing.add_argument("name", help=f"name of a ladder: {' '.join(ladders.names())}")
    climbing.add_argument("--json", metavar="FILE", help="write the counts to a file")
    debugging = add("debug", debug, "run a solution in gdb, stopped in one thread", has_file=True)
    add_at(debugging)
    debugging.add_argument("--block", default="0", help="block, X,Y,Z")
    debugging.add_argument("--thread", default="0", help="thread, X,Y,Z")
    debugging.add_argument("--gdb", action="append", default=[], metavar="COMMAND", help="command of gdb after the stop")
    packs.add_commands(add)
    verification.add_commands(add)
    return result


def main(words):
    options = parser().parse_args(words)
    try:
        return options.function(options)
    except runs.NotCompiled as error:
        print(error, file=sys.stderr)
        return NOT_COMPILED
    except Failure as error:
        print(f"convoy-learn {options.command}: {error}", file=sys.stderr)
        return HARNESS


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BrokenPipeError:
        sys.exit(HARNESS)
