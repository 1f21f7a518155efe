"""Runs the project's tests on the device, and some of them under compute-sanitizer."""

import functools
import json
import pathlib
import re
import tempfile

from gpu_validation.environment import need_device, sanitizer_problem
from gpu_validation.work import Failed, NotHere, last_line

# Matches the name of a suite or test that uses a GPU.
OF_A_GPU = re.compile(r"Cuda|Cudnn|Cublas|Gpu")
# Suites that compare times: they run alone.
TIMES = re.compile(r"CudaGraph|CudaEvent")
# For --quick: only single precision of the tests that exist for several types.
QUICK = "*/0.*:CudaRuntime*:CudaDispatch*:KernelRows.RunOnAGpu:CudaRun.AutoSelectsTheGpu"
# Few enough to finish in minutes under tools that slow kernels down by a factor of 100: only single precision of the
# tests that exist for several types. racecheck and initcheck run on kernels of this project, not on library kernels.
SANITIZED = (
    ("memcheck", "CudaBatchNorm/0.*:CudaPool2d/0.*:CudaAugment/0.*:CudaConv2d/0.*:CudaMatmul/0.*"),
    ("memcheck", "CudaElementwise/0.*:CudaReduce/0.*:CudaCrossEntropy/0.*:CudaOptimizer/0.*:CudaLossScale*"),
    ("memcheck", "CudaGraph*:CudaCapture*:CudaCapturedKernels*"),
    ("racecheck", "CudaBatchNorm/0.*:CudaReduce/0.*:CudaCrossEntropy/0.*"),
    ("initcheck", "CudaReduce/0.*:CudaCrossEntropy/0.*:CudaLossScale*"),
    ("synccheck", "CudaReduce/0.*"),
)


# Kernels that order their accesses by hand: by tickets, by starts before the end of the kernel before, and by barriers
# in trees. Tests for several types have the numbers 0 to 3: f32, f64, f16 and bf16.
RACES = tuple(("racecheck", pattern) for pattern in
              ("CudaBatchNorm/2.*:CudaBatchNorm/3.*", "CudaLastBlock.LeavesTheTicketsZero",
               "CudaReduce/2.*:CudaReduce/3.*", "CudaOptimizer/0.*", "CudaConv2d3x3/1.*Any*:CudaConv2d3x3/1.*Pool*"))


def suites_in(listing):
    """Parses the output of --gtest_list_tests into {suite: [tests]}."""
    suites, suite = {}, None
    for line in listing.splitlines():
        name = line.split("#")[0].rstrip()
        if name.startswith("  ") and suite:
            suites[suite].append(name.strip())
        elif name.endswith(".") and " " not in name:
            suite = name[:-1]
            suites[suite] = []
    return suites


def of_a_gpu(suites):
    return [
        f"{suite}.{test}" for suite, tests in suites.items() for test in tests if OF_A_GPU.search(f"{suite}.{test}")
    ]


def matches(patterns, name):
    """Returns whether a test matches one of these Google Test patterns."""
    return any(re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), name) for pattern in patterns.split(":"))


def test_programs(work):
    """Returns {program: {suite: [tests]}} for the programs that test a GPU."""
    found = {}
    for program in sorted(work.programs.glob("*_test")):
        done = work.run([program, "--gtest_list_tests"], 30)
        if done.returncode != 0:
            work.problems.append(f"{program.name}: does not start: {last_line(done.stderr)}")
            continue
        suites = suites_in(done.stdout)
        if of_a_gpu(suites) and not program.name.startswith("cuda_emulator"):
            found[program.name] = suites
    return found


def outcome_of_report(report):
    """Summarizes Google Test's JSON report: number of tests, failures with messages, skipped tests."""
    each = [test for suite in report["testsuites"] for test in suite["testsuite"]]
    ran = [test for test in each if test["status"] == "RUN"]

    def name(test):
        return f"{test['classname']}.{test['name']}"

    return {
        "tests": len(ran),
        "failed": {
            name(test): test["failures"][0]["failure"].splitlines()[:6] for test in ran if "failures" in test
        },
        "skipped": [name(test) for test in ran if test["result"] == "SKIPPED"]
    }


def run_suite(work, program, suite, tests):
    """Runs tests of one suite and adds the outcome to that of the program's other suites. Each suite has a process of
    its own, so that one that crashes or hangs takes no other results with it."""
    with tempfile.TemporaryDirectory() as directory:
        report = pathlib.Path(directory) / "report.json"
        done = work.run([work.programs / program, f"--gtest_output=json:{report}", f"--gtest_filter={':'.join(tests)}"])
        if not report.exists():
            raise Failed(f"ended with code {done.returncode}: {last_line(done.stderr or done.stdout)}")
        outcome = outcome_of_report(json.loads(report.read_text()))
    found = work.found.setdefault(program, {"tests": 0, "failed": {}, "skipped": []})
    found["tests"] += outcome["tests"]
    found["failed"].update(outcome["failed"])
    found["skipped"] += outcome["skipped"]
    if outcome["failed"]:
        first, lines = next(iter(outcome["failed"].items()))
        raise Failed(
            f"{len(outcome['failed'])} of {outcome['tests']} tests failed, the first is {first}: {' '.join(lines)}")


def run(work):
    need_device(work)
    programs = test_programs(work)
    if not programs:
        raise Failed(f"no test program in {work.programs}; build them with cmake --build … --target convoy_tests")
    parts = {}
    for program, suites in programs.items():
        for suite, tests in suites.items():
            chosen = [name for name in of_a_gpu({suite: tests}) if not work.quick or matches(QUICK, name)]
            if chosen:
                parts[f"{program}, {suite}"] = functools.partial(run_suite, work, program, suite, chosen)
    alone = {name: part for name, part in parts.items() if TIMES.search(name)}
    work.trials({name: part for name, part in parts.items() if name not in alone}, work.max_concurrent(4))
    work.trials(alone)


def matching(programs, patterns):
    """Returns the programs that have a test matching one of these Google Test patterns."""
    return [program for program, suites in programs.items()
            if any(matches(patterns, f"{suite}.{test}") for suite, tests in suites.items() for test in tests)]


def sanitize(work, tool, program, chosen):
    done = work.run(["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", work.programs / program,
                     f"--gtest_filter={chosen}"])
    summary = [line for line in done.stdout.splitlines() if "SUMMARY" in line]
    ran = re.search(r"Running (\d+) tests?", done.stdout)
    entry = {"tests": int(ran.group(1)) if ran else 0, "summary": summary[-1].strip("= ") if summary else "none"}
    work.found[f"{tool} {program} {chosen}"] = entry
    if done.returncode != 0:
        raise Failed(f"code {done.returncode}, {entry['summary']}, {last_line(done.stdout)}")


def run_racecheck(work):
    run_sanitizer(work, RACES)


def run_sanitizer(work, checks=SANITIZED):
    need_device(work)
    problem = sanitizer_problem(work)
    if problem:
        raise NotHere(f"compute-sanitizer: {problem}")
    programs = test_programs(work)
    parts = {}
    for tool, patterns in checks:
        found = matching(programs, patterns)
        if not found:
            work.problems.append(f"{tool}: no test matches {patterns}")
        parts.update({f"{tool} {program} {patterns}": functools.partial(sanitize, work, tool, program, patterns)
                      for program in found})
    work.trials(parts, work.max_concurrent(2))
