"""cuemu: runs, checks, counts and debugs CUDA programs on a CPU. Needs g++ and Python."""
import argparse
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile

import build
import names
import report
from translate import Translator

FOUND, NOT_COMPILED, USAGE = 1, 2, 3  # exit codes, other than a program's own
# The orders of `check`: of threads, of streams, and the seed.
ORDERS = [("ascending", "eager", 1), ("descending", "eager", 1), ("random", "random", 1), ("random", "random", 2)]
# Those that stop a kernel first; then races, of which uninitialized memory may be a consequence.
CAUSES = ["CE003", "CE004", "CE005", "CE102", "CE103", "CE101", "CE108", "CE107", "CE104", "CE106", "CE002", "CE006"]
MAX_SHOWN = 10  # findings


def environment(order=("ascending", "eager", 1), **more):
    """The environment of a program. What the caller has set stays, unless `more` or the order says otherwise."""
    own = {"CONVOY_EMULATOR_ORDER": order[0], "CONVOY_EMULATOR_STREAMS": order[1], "CONVOY_EMULATOR_SEED": str(order[2])}
    return {**os.environ, **own, **more}


def execute(program, arguments, seconds, variables, **options):
    """Runs a program. Returns its exit status, 128 + N if signal N ended it, and its output, None if it was not captured."""
    try:
        done = subprocess.run([str(program), *arguments], env=variables, timeout=seconds, **options)
    except subprocess.TimeoutExpired:
        raise SystemExit(f"cuemu: {program.name} did not end within {seconds} s; change the limit by --timeout") from None
    if done.returncode >= 0:
        return done.returncode, done.stdout
    print(f"cuemu: {program.name} was ended by {signal.Signals(-done.returncode).name}; cuemu check names the line of a wrong access",
          file=sys.stderr)
    return 128 - done.returncode, done.stdout


def parse_order(text):
    """Returns ("random", "random", 7) for random:7, with streams in the same order."""
    match = re.fullmatch(r"(ascending|descending|random)(?::(\d+))?", text)
    if match is None or (match[2] and match[1] != "random"):
        raise argparse.ArgumentTypeError(f"found '{text}', expected ascending, descending, random or random:SEED")
    return match[1], "random" if match[1] == "random" else "eager", int(match[2] or 1)


def run(options, work):
    program = work / pathlib.Path(options.file).stem
    build.compile_program(options.file, program, "plain")
    return execute(program, options.arguments, options.timeout, environment(options.order))[0]


def check(options, work):
    program = work / pathlib.Path(options.file).stem
    build.compile_program(options.file, program, "count")
    findings, outputs, status = [], [], 0
    for order in [ORDERS[0], *ORDERS]:  # the first one twice: lines that differ have times
        path = work / "report.jsonl"
        path.write_text("")
        ended, output = execute(program, options.arguments, options.timeout,
                                environment(order, CUEMU_CHECK="1", CUEMU_REPORT=str(path)), stdout=subprocess.PIPE)
        outputs.append(output.decode(errors="replace").splitlines())
        for finding in report.read(path)[0]:
            findings.append(finding)
        status = status or ended
        if findings:
            break
    findings = sorted(findings, key=lambda finding: CAUSES.index(finding["code"])) or other_output(outputs)
    for finding in findings[:MAX_SHOWN]:
        print(report.to_string(finding))
    if len(findings) > MAX_SHOWN:
        print(f"and {len(findings) - MAX_SHOWN} more")
    if findings:
        print(f"cuemu explain {findings[0]['code']} tells what it means and how to mend it")
        return FOUND
    if status != 0:
        print("\n".join(outputs[0]))
        print(f"cuemu: the program ended with exit status {status}; no finding")
        return FOUND
    print(f"{options.file}: no finding in {len(ORDERS)} orders of threads and streams")
    return 0


def other_output(outputs):
    """Returns a finding if the output depends on the order. Lines that differ in two equal runs do not count."""
    again, first = outputs[0], outputs[1]
    for (threads, streams, _), output in zip(ORDERS[1:], outputs[2:]):
        for number, line in enumerate(first):
            is_stable = number < len(again) and again[number] == line
            other = output[number] if number < len(output) else ""
            if is_stable and other != line:
                return [{"code": "CE105", "place": "", "message":
                         f"the output depends on the order of threads: '{line}' in ascending order, '{other}' in {threads} "
                         f"order{' of threads and streams' if streams == 'random' else ''}"}]
    return []


def count(options, work):
    program = work / pathlib.Path(options.file).stem
    build.compile_program(options.file, program, "count")
    path = pathlib.Path(options.json) if options.json else work / "report.jsonl"
    path.write_text("")
    status, _ = execute(program, options.arguments, options.timeout,
                        environment(options.order, CUEMU_COUNT="1", CUEMU_REPORT=str(path.resolve())))
    findings, launches = report.read(path)
    for finding in findings:
        print(report.to_string(finding))
    for group in report.grouped(launches):
        if options.kernel and options.kernel not in group["kernel"]:
            continue
        print("\n" + "\n".join([*report.table(group), *report.remarks(group)]))
    return status


def debug(options, work):
    program = work / pathlib.Path(options.file).stem
    kernels = build.compile_program(options.file, program, "debug")
    kernel = options.kernel or (kernels[0] if kernels else None)
    if kernel is None:
        raise SystemExit(f"cuemu: found no kernel in {options.file}")
    if shutil.which("gdb") is None:
        raise SystemExit("cuemu: found no gdb; install the package gdb")
    at = [f"{variable}.{axis} == {value}" for variable, values in (("blockIdx", options.block), ("threadIdx", options.thread))
          for axis, value in zip("xyz", values)]
    commands = [f"break {kernel} if {' && '.join(at)}", "run", *options.gdb]
    return subprocess.run(["gdb", "-q", *(["-batch"] if options.gdb else []),
                           *(word for command in commands for word in ("-ex", command)), "--args", str(program),
                           *options.arguments], env=environment()).returncode


def compile_(options, _work):
    output = pathlib.Path(options.output).resolve()
    with tempfile.TemporaryDirectory(dir=output.parent) as work:
        program = pathlib.Path(work) / "program"
        build.compile_program(options.file, program, "count" if options.count else "debug" if options.debug else "plain")
        os.replace(program, output)
    return 0


def translate(options, work):
    if options.output is None:
        print(Translator(work).translate(options.file), end="")
        return 0
    output = pathlib.Path(options.output)
    output.parent.mkdir(parents=True, exist_ok=True)
    translator = Translator(output.parent)
    output.write_text(translator.translate(options.file), encoding="utf-8")
    sources = " ".join(str(path).replace(" ", "\\ ") for path in (options.file, *translator.headers))
    pathlib.Path(f"{output}.d").write_text(f"{output}: {sources}\n", encoding="utf-8")
    return 0


def explain(options, _work):
    page = report.ROOT / "findings" / f"{options.code}.md"
    if not page.exists():
        known = " ".join(sorted(path.stem for path in page.parent.glob("CE*.md")))
        raise SystemExit(f"cuemu explain: found '{options.code}', expected one of: {known}")
    print(page.read_text(encoding="utf-8"), end="")
    return 0


def index(text):
    """Returns (1, 2, 0) for "1,2"."""
    parts = text.split(",")
    if not 1 <= len(parts) <= 3 or not all(part.isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"found '{text}', expected X, X,Y or X,Y,Z")
    return tuple(int(part) for part in (parts + ["0", "0"])[:3])


def parser():
    result = argparse.ArgumentParser(prog="cuemu", description=__doc__)
    result.add_argument("--api", action="store_true", help="print the names of CUDA that are supported")
    commands = result.add_subparsers(dest="command", metavar="COMMAND")

    def add(name, function, help_, is_executed=True):
        command = commands.add_parser(name, help=help_, description=help_)
        command.set_defaults(function=function)
        if function is explain:
            command.add_argument("code", help="code of a finding, such as CE101")
            return command
        command.add_argument("file", help="CUDA file")
        if is_executed:
            command.add_argument("arguments", nargs=argparse.REMAINDER, help="arguments of the program")
            command.add_argument("--timeout", type=float, default=60, help="limit of one run (seconds)")
        return command

    def add_order(command):
        command.add_argument("--order", type=parse_order, default=ORDERS[0],
                             help="order of threads: ascending, descending, random or random:SEED (with random streams)")

    add_order(add("run", run, "compile and run a program"))
    add("check", check, f"run a program in {len(ORDERS)} orders and find mistakes; exit status 1 if there is any")
    counting = add("count", count, "run a program and count what its kernels access")
    add_order(counting)
    counting.add_argument("--kernel", help="show kernels whose name contains this")
    counting.add_argument("--json", metavar="FILE", help="write the counts to a file, a line per launch")
    debugging = add("debug", debug, "run a program in gdb and stop in a kernel")
    debugging.add_argument("--kernel", help="kernel (default: the first one of the file)")
    debugging.add_argument("--block", type=index, default=(0, 0, 0), help="block, X,Y,Z")
    debugging.add_argument("--thread", type=index, default=(0, 0, 0), help="thread, X,Y,Z")
    debugging.add_argument("--gdb", action="append", default=[], metavar="COMMAND",
                           help="command of gdb after the stop; with it, gdb ends after the last one")
    compiling = add("compile", compile_, "compile a program", is_executed=False)
    compiling.add_argument("-o", dest="output", required=True, help="program to write")
    compiling.add_argument("--count", action="store_true", help="for checks and counts")
    compiling.add_argument("--debug", action="store_true", help="without optimization")
    translating = add("translate", translate, "print the C++ that g++ compiles", is_executed=False)
    translating.add_argument("-o", dest="output", help="file to write instead, with its headers next to it and its dependencies in FILE.d")
    add("explain", explain, "tell what a finding means")
    return result


def main(arguments):
    options = parser().parse_args(arguments)
    if options.api:
        print("\n".join(names.api()))
        return 0
    if options.command is None:
        parser().print_help()
        return USAGE
    if "file" in options and not pathlib.Path(options.file).is_file():
        print(f"cuemu {options.command}: found no file {options.file}", file=sys.stderr)
        return USAGE
    with tempfile.TemporaryDirectory(prefix="cuemu-") as work:
        try:
            return options.function(options, pathlib.Path(work))
        except (build.Failed, build.Refused) as error:
            print(error, file=sys.stderr)
            return NOT_COMPILED
        except SystemExit as error:
            if error.code and not isinstance(error.code, int):
                print(error.code, file=sys.stderr)
                return USAGE
            raise


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
