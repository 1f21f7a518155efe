#!/usr/bin/env python3
"""scripts/slowest.py [--tests N] [--units N] [--builds] [BUILD]: where the time of building and testing goes.

--tests N: the N slowest tests of the last run of scripts/test.sh; --builds: the test time of each of its builds;
--units N: the N slowest compilers and linkers of BUILD (build/test), each with the time of its last run. Without an
option: 50 tests and 20 units. Times are seconds on a machine that does other things too.
"""
import argparse
import collections
import pathlib
import sys
import xml.etree.ElementTree

ROOT = pathlib.Path(__file__).resolve().parent.parent


def test_times(report):
    """Returns [(seconds, name)] of the tests in a JUnit report, the slowest one first."""
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return sorted(((float(case.get("time", 0)), case.get("name")) for case in cases), reverse=True)


def unit_times(log):
    """Returns [(seconds, output)] of the steps in a .ninja_log, the slowest one first."""
    seconds = {}
    for line in log.read_text(encoding="utf-8").splitlines()[1:]:
        start, end, _, output, _ = line.split("\t")
        seconds[output] = (int(end) - int(start)) / 1000
    return sorted(((time, output) for output, time in seconds.items()), reverse=True)


def table(times, count):
    total = sum(time for time, _ in times)
    return "".join(f"{time:8.2f}  {name}\n" for time, name in times[:count]) + f"{total:8.0f}  all {len(times)}\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tests", type=int, metavar="N", default=0)
    parser.add_argument("--units", type=int, metavar="N", default=0)
    parser.add_argument("--builds", action="store_true")
    parser.add_argument("build", nargs="?", type=pathlib.Path, default=ROOT / "build" / "test")
    options = parser.parse_args()
    if not (options.tests or options.units or options.builds):
        options.tests, options.units = 50, 20
    report, log = ROOT / "build" / "tests" / "junit.xml", options.build / ".ninja_log"
    for needed, file in ((options.tests or options.builds, report), (options.units, log)):
        if needed and not file.is_file():
            sys.exit(f"{file}: not found; run scripts/test.sh first")
    if options.builds:
        seconds = collections.Counter()
        for time, name in test_times(report):
            seconds[name.split(".")[0]] += time
        for build, time in sorted(seconds.items()):
            print(f"{time / 60:8.1f}  tests of {build}, of which some ran at the same time")
    if options.tests:
        print(f"seconds  test\n{table(test_times(report), options.tests)}", end="")
    if options.units:
        print(f"seconds  step\n{table(unit_times(log), options.units)}", end="")


if __name__ == "__main__":
    main()
