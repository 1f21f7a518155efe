"""Tests of bench/python/compare.py and its subcommands, with fake programs."""

import json
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "bench" / "python"
sys.path.insert(0, str(PYTHON))
import compare as program  # noqa: E402
import cpu_goals  # noqa: E402
from comparisons import accuracy, harness, loader, step  # noqa: E402

HEAD = f"""#!{sys.executable}
import json, os, pathlib, sys
def value(flag, otherwise=""):
    return sys.argv[sys.argv.index(flag) + 1] if flag in sys.argv else otherwise
def report(**figures):
    pathlib.Path(value("--json")).write_text(json.dumps(figures))
"""
# A fake mpirun: sets the number of ranks and executes the program once.
MPIRUN = """
os.environ["RANKS"] = value("-n")
os.execv(sys.argv[3], sys.argv[3:])
"""
STEP = """
ranks = int(os.environ.get("RANKS", 1))
rate = 90.0 if ranks > 1 else 100.0
report(world_size=WORLD, ranks="so many", images_per_second={"median": rate})
"""


def compare(*flags):
    return subprocess.run([sys.executable, "-B", PYTHON / "compare.py", *map(str, flags)], capture_output=True, text=True)


class Programs(unittest.TestCase):
    """A build directory with fake programs."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.program("convoy-train", "print('convoy-train 9.9')")
        self.mpirun = self.program("mpirun", MPIRUN)

    def program(self, name, text):
        program = self.directory / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(HEAD + text)
        program.chmod(0o755)
        return program


class Arguments(Programs):
    def test_every_comparison_has_help(self):
        for name, module in program.COMPARISONS.items():
            done = compare(name, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), name)
            self.assertIn(module.__doc__.splitlines()[0], done.stdout)

    def test_invalid_flags_are_rejected_before_anything_runs(self):
        for flags, what in (
            ((), "the following arguments are required: comparison"),
            (("steps",), "invalid choice: 'steps'"),
            (("ranks", "--ranks", "1"), "--ranks: found 1, expected 2 or more"),
            (("ranks", "--json", "/nowhere/figures.json"), "--json: found no directory /nowhere"),
            (("accuracy", "--seeds", "1"), "--seeds: found 1, expected 2 or more"),
            (("loader", "--data", ".", "--sides", "pilow"), "--sides: found 'pilow', expected pillow"),
            (("loader",), "--data"),
            (("loader", "--data", "/nowhere"), "--data: found no directory /nowhere"),
            (("loader", "--data", ".", "--rounds", "0"), "--rounds: found 0, expected 1 or more"),
            (("accuracy", "--batch-size", "many"), "--batch-size: found many, expected a whole number, 1 or more"),
            (("accuracy", "--data", "/nowhere"), "--data: found no directory /nowhere"),
            (("step", "--windows", "0"), "--windows: found 0, expected 1 or more"),
            (("step", "--sides", "eager"), "--sides: found 'eager', expected MODE:FORMAT"),
            (("step", "--time-limit", "nan"), "--time-limit: found nan, expected 1 or more"),
            (("faults", "--ranks", "1"), "--ranks: found 1, expected 2 or more"),
            (("faults", "--times", "0"), "--times: found 0, expected 1 or more"),
            (("faults", "--limit", "0"), "--limit: found 0, expected 1 or more"),
            (("faults", "--python", "/nowhere/python"), "--python: found no program /nowhere/python"),
            (("waits", "--times", "-1"), "--times: found -1, expected 1 or more"),
            (("waits", "--suspension", "inf"), "--suspension: found inf, expected 0 or more"),
            (("waits", "--python", "/nowhere/python"), "--python: found no program /nowhere/python"),
            (("waits", "--row", "nonsense"), "--row: found 'nonsense', expected words of: "),
            (("speedrun", "--seeds", "0"), "--seeds: found 0, expected 1 or more"),
            (("speedrun", "--block", "0"), "--block: found 0, expected 1 or more"),
            (("speedrun", "--python-compile", "max-autotune"), "--python-compile: requires --python"),
            (("speedrun", "--plot", "/nowhere/plot.svg"), "--plot: found no directory /nowhere"),
            (("speedrun", "--data", "", "--python", "python3"), "--python: requires --data"),
        ):
            done = compare(*flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(what, done.stderr)

    def test_a_missing_program_is_reported_in_one_line(self):
        for name, *more in (("ranks", "--mpirun", "/nowhere/program"), ("accuracy",), ("loader", "--data", "."),
                            ("speedrun",), ("step",)):
            done = compare(name, "--convoy", "/nowhere/program", *more)
            self.assertEqual((done.returncode, done.stderr),
                             (1, f"compare {name}: program: No such file or directory\n"))


class Reasons(unittest.TestCase):
    FRAME = 74 * "-"

    def test_the_error_of_the_program_has_priority(self):
        self.assertEqual(
            harness.reason(f"convoy-bench-step: error: --model: found 'nope'\n{self.FRAME}\nPrimary job terminated\n"
                              f"{self.FRAME}\n"), "convoy-bench-step: error: --model: found 'nope'")

    def test_a_framed_message_of_mpirun_becomes_one_line(self):
        self.assertEqual(
            harness.reason(f"{self.FRAME}\nmpirun could not\nexecute an executable:\n\nExecutable: /nowhere/x\n"
                              f"{self.FRAME}\n\n{self.FRAME}\nmore\n{self.FRAME}\n"),
            "mpirun could not execute an executable: Executable: /nowhere/x")

    def test_the_last_line_is_the_fallback(self):
        self.assertEqual(harness.reason("a warning\nImportError: no torch\n"), "ImportError: no torch")
        self.assertEqual(harness.reason(f"one\n{self.FRAME}\n"), self.FRAME)
        self.assertEqual(harness.reason(""), "no output")

    def test_a_program_that_mpirun_does_not_find_is_reported(self):
        with tempfile.TemporaryDirectory() as directory:
            starter = pathlib.Path(directory) / "starter"
            starter.write_text(HEAD + f"""
sys.stderr.write({self.FRAME!r} + "\\nno " + sys.argv[3] + "\\n" + {self.FRAME!r} + "\\n")
sys.exit(132)
""")
            starter.chmod(0o755)
            done = compare("ranks", "--ranks", 2, "--mpirun", starter, "--convoy", "/nowhere/program")
        self.assertEqual((done.returncode, done.stderr), (1, "compare ranks: starter: code 132, no /nowhere/program\n"))


class Comparisons(Programs):
    def test_ranks_are_compared_with_threads(self):
        bench = self.program("convoy-bench-step", STEP.replace("WORLD", "ranks"))
        file = self.directory / "figures.json"
        done = compare("ranks", "--convoy", bench, "--mpirun", self.mpirun, "--ranks", 3, "--rounds", 2, "--json", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(file.read_text())
        self.assertEqual((figures["ratio"], figures["ranks"], figures["rounds"]),
                         ({"median": 0.9, "lowest": 0.9, "highest": 0.9}, 3, 2))

    def test_processes_without_a_common_world_size_are_rejected(self):
        bench = self.program("convoy-bench-step", STEP.replace("WORLD", "1"))
        done = compare("ranks", "--convoy", bench, "--mpirun", self.mpirun, "--ranks", 2)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "compare ranks: found a world size of 1 with 2 processes: so many\n"))

    def test_accuracies_are_compared_seed_by_seed(self):
        train = self.program("convoy-train", """
seed, gained = int(value("--seed")), 0.002 if os.environ["CONVOY_WINOGRAD"] == "on" else 0
accuracy = 0.5 + 0.01 * seed + gained * seed
out = pathlib.Path(value("--out"))
lines = [{"event": "step"}, {"event": "result", "test_accuracy": accuracy, "test_loss": 1.0}]
(out / "log.jsonl").write_text("".join(json.dumps(line) + chr(10) for line in lines))
""")
        file = self.directory / "figures.json"
        done = compare("accuracy", "--convoy", train, "--seeds", 3, "--json", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(file.read_text())
        self.assertAlmostEqual(figures["accuracy"]["off"]["mean"], 0.52)
        self.assertAlmostEqual(figures["accuracy_difference"]["mean"], 0.004)
        # The differences are 0.002, 0.004 and 0.006: their standard deviation is 0.002.
        self.assertAlmostEqual(figures["accuracy_difference"]["standard_error"], 0.002 / math.sqrt(3))
        self.assertEqual(accuracy.differences([0.5, 0.6], [0.5, 0.6]), {"mean": 0, "standard_error": 0})

    def test_the_first_epoch_of_the_loader_is_compared(self):
        bench = self.program("convoy-bench-loader", """
rates = {"images_per_second": {"median": 800.0}, "images_per_core_second": {"median": 400.0}}
first = {"images": 7, "images_per_second": 80.0, "images_per_core_second": 40.0}
report(first_epoch=first, image=[2, 2, 3], transform="none", machine={"cores": 2}, **rates)
""")
        peer = self.program("peer", """
if value("--decoder") == "torchvision":
    sys.exit("no decoder")
print(json.dumps({"event": "warm", "torch": "1", "torchvision": "2"}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "epochs", "images": 100, "seconds": 5, "core_seconds": 10}), flush=True)
""")
        file = self.directory / "figures.json"
        command = ["loader", "--convoy", bench, "--data", self.directory, "--rounds", "2", "--json", file]
        arguments = program.parser().parse_args(list(map(str, command)))
        loader.check(arguments)
        with mock.patch.object(loader, "PEER", peer):
            figures = loader.compare(arguments, harness.Deadline(60).left)
        self.assertEqual(figures["ratios_by_round"]["pillow"]["images_per_core_second"]["median"], 4)
        self.assertEqual(figures["ratios_by_round"]["pillow"]["images_per_second"]["median"], 4)
        self.assertEqual(figures["ratios_of_later_epochs"]["pillow"]["images_per_core_second"]["median"], 40)
        self.assertEqual(figures["left_out"], {"torchvision": "no decoder"})
        loader.print_figures(figures)
        text, ratio = cpu_goals.loader("ratios_by_round")(figures)
        self.assertEqual((ratio, text.split(";")[0]), (4, "4.00 (4.00 to 4.00)"))

    def test_steps_are_compared_with_each_format(self):
        train = self.program("convoy-train", """
if "--version" in sys.argv:
    sys.exit(print("convoy-train 9.9"))
lines = [{"event": "step", "step_ms": 250, "memory_bytes": 9} for _ in range(int(value("--max-steps")))]
out = pathlib.Path(value("--out"))
out.mkdir(exist_ok=True)
(out / "log.jsonl").write_text("".join(json.dumps(line, separators=(",", ":")) + chr(10) for line in lines))
""")
        peer = self.program("peer", """
if value("--compile") != "no":
    sys.exit("no compiler")
ms = 1000 if "channels_last" in sys.argv else 500
print(json.dumps({"event": "first step", "torch": "9.8.7"}))
print(json.dumps({"event": "warm"}), flush=True)
for line in sys.stdin:
    print(json.dumps({"event": "window", "step_ms": ms, "peak_bytes": 7}), flush=True)
""")

        def measure(*flags):
            arguments = program.parser().parse_args(["step", "--convoy", str(train), "--model", "lenet", "--batch-size", "4",
                                                     "--rounds", "2", "--windows", "1", "--warmup", "1", *flags])
            step.check(arguments)
            with mock.patch.object(step, "PEER", peer):
                figures = step.compare(arguments, harness.Deadline(60).left)
            step.print_figures(figures)
            return figures

        figures = measure("--sides", "eager:channels_last,eager:contiguous_format,default:channels_last",
                          "--busy-processes", "1")
        self.assertEqual((figures["torch"], figures["left_out"]), ("9.8.7", {"default:channels_last": "no compiler"}))
        self.assertEqual(figures["ratios"], {"eager:channels_last": 4, "eager:contiguous_format": 2})
        self.assertEqual(figures["relative_to_idle"]["convoy"], {"median": 1, "lowest": 1, "highest": 1})
        self.assertEqual(figures["sides"]["convoy"]["peak_bytes"], 9)
        starts = measure("--cold-start")
        self.assertEqual(starts["ratio"], starts["seconds"]["convoy"] / starts["seconds"]["pytorch"])

    def test_run_to_end_returns_memory_or_raises_a_reason(self):
        big = self.program("big", "kept = bytearray(100_000_000)\nprint(len(kept))")
        done = harness.run_to_end([big], 60)
        self.assertEqual(done.out, "100000000\n")
        self.assertGreater(done.peak_resident_bytes, 100_000_000)
        self.assertLess(done.peak_resident_bytes, 1_000_000_000)
        with self.assertRaisesRegex(harness.Unavailable, "^sleep: not done after 0 s$"):
            harness.run_to_end(["sleep", "60"], 0.2)
        with self.assertRaisesRegex(harness.Unavailable, "^bad: code 3, the last line$"):
            bad = self.program("bad", "print('first\\nthe last line', file=sys.stderr)\nsys.exit(3)")
            harness.run_to_end([bad], 60)

    def test_rounds_stop_when_time_runs_out(self):
        self.assertEqual(harness.collect_rounds(3, lambda: 100, lambda i: i), [0, 1, 2])
        self.assertEqual(harness.collect_rounds(3, lambda: 0, lambda i: i), [0])

    def test_a_round_cut_short_by_the_deadline_is_dropped(self):
        left = [100]

        def run_round(i):
            if i == until:
                left[0] = -1 if is_late else 100
                raise harness.Unavailable("no window")
            return i

        until, is_late = 2, True
        self.assertEqual(harness.collect_rounds(5, lambda: left[0], run_round), [0, 1])
        for until, is_late in ((0, True), (2, False)):  # the first round, or another reason
            left[0] = 100
            with self.assertRaisesRegex(harness.Unavailable, "no window"):
                harness.collect_rounds(5, lambda: left[0], run_round)

    def test_memory_ratios(self):
        ours = {"peak_resident_bytes": 50, "start_resident_bytes": 10}
        theirs = {"peak_resident_bytes": 200, "start_resident_bytes": 120}
        self.assertEqual(step.memory_ratios(ours, theirs), {"whole": 0.25, "growth": 0.5})
        self.assertEqual(step.memory_ratios(ours, {"peak_resident_bytes": 0}), {})


SPEEDRUN = f"""#!{sys.executable}
import datetime, json, pathlib, sys
value = lambda flag: sys.argv[sys.argv.index(flag) + 1]
if "--print-config" in sys.argv:
    print("epochs = 2")
elif "--version" in sys.argv:
    print("convoy 1")
else:
    first, out = int(value("--seed")), pathlib.Path(value("--out"))
    repeat = int(value("--repeat")) if "--repeat" in sys.argv else 1
    for seed in range(first, first + repeat):
        result = dict(event="result", time=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="milliseconds"),
                      test_accuracy=0.80 + 0.01 * seed, tta_accuracy=0.82 + 0.01 * seed, train_seconds=10 * seed,
                      tta_seconds=1, initialization_seconds=0.5)
        directory = out / f"seed-{{seed}}" if repeat > 1 else out
        directory.mkdir(parents=True)
        (directory / "log.jsonl").write_text(json.dumps(dict(event="start")) + chr(10) + json.dumps(result))
"""
# Stands for the interpreter of pytorch_speedrun.py. Fails unless it gets the configuration of the other side.
PYTORCH = f"""#!{sys.executable}
import json, pathlib, sys, time
value = lambda flag: sys.argv[sys.argv.index(flag) + 1]
if sys.argv[1] == "-c":
    sys.exit(print("2.0"))
assert pathlib.Path(value("--config")).read_text() == "epochs = 2\\n"
for seed in range(int(value("--seeds"))):
    print(json.dumps(dict(test_accuracy=0.8, tta_accuracy=0.84, train_seconds=40 if value("--compile") == "no" else 30,
                          tta_seconds=2, end=time.monotonic())))
"""


class Waits(Programs):
    """Ranks that print a text, and end after some seconds."""

    TRAINING = """
import time
print("rank 1 on here is missing" if NAMES else "a rank is missing", flush=True)
time.sleep(SECONDS)
"""

    def row(self, names, seconds, *flags):
        self.program("convoy-train", self.TRAINING.replace("NAMES", repr(names)).replace("SECONDS", repr(seconds)))
        with tempfile.NamedTemporaryFile("r") as figures, mock.patch("comparisons.waits.HANG", 1):
            arguments = ["compare.py", "waits", "--build", str(self.directory), "--row", "never started", "--timeout", "1",
                         "--json", figures.name, *flags]
            with mock.patch.object(sys, "argv", arguments), mock.patch("builtins.print"):
                program.main()
            return json.load(figures)["rows"][0]

    def test_a_job_that_ends_and_names_the_rank_meets_its_limit(self):
        found = self.row(True, 0.1)
        self.assertTrue(program.waits.is_met(found), found)

    def test_a_job_that_names_no_rank_or_never_ends_does_not(self):
        found = self.row(False, 0.1)
        self.assertFalse(found["named"])
        self.assertFalse(program.waits.is_met(found))
        found = self.row(True, 60)
        self.assertIsNone(found["seconds"])
        self.assertFalse(program.waits.is_met(found))


class Speedrun(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        for name, text in (("convoy-train", SPEEDRUN), ("python", PYTORCH)):
            (self.directory / name).write_text(text)
            (self.directory / name).chmod(0o755)

    def compare(self, *flags):
        done = compare("speedrun", "--convoy", self.directory / "convoy-train", "--data", self.directory, "--json",
                       self.directory / "out.json", *flags)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout, json.loads((self.directory / "out.json").read_text())

    def test_means_have_standard_errors(self):
        table, figures = self.compare("--seeds", 3)
        accuracy = figures["sides"]["convoy"]["tta_accuracy"]
        self.assertAlmostEqual(accuracy["mean"], 0.84)
        self.assertAlmostEqual(accuracy["standard_error"], 0.01 / 3**0.5)
        self.assertIn("| convoy | 3 | 84.00 ± 0.58 | 82.00 ± 0.58 | 20.0 ± 5.8 | 1.000 ± 0.000 | 21.5 ± 5.8 |", table)
        self.assertEqual(list(figures["sides"]), ["convoy"])
        self.assertEqual(figures["versions"], {"convoy": ["convoy 1"]})

    def test_one_seed_has_no_error(self):
        table, _ = self.compare("--seeds", 1, "--first-seed", 2)
        self.assertIn("| convoy | 1 | 84.00 | 82.00 | 20.0 | 1.000 | 21.5 |", table)

    def test_a_block_is_one_process_of_pytorch(self):
        table, figures = self.compare("--seeds", 5, "--block", 2, "--python", self.directory / "python",
                                      "--python-compile", "max-autotune")
        self.assertEqual([seed for seed, side in re.findall(r"seed (\d)  (\w+)", table) if side == "pytorch"], list("12345"))
        for side, seconds in (("pytorch", 40), ("compiled", 30)):
            self.assertEqual(figures["sides"][side]["train_seconds"]["each"], [seconds] * 5)
            self.assertEqual(len(figures["sides"][side]["process_seconds"]["each"]), 3)  # one process for each block
        convoy = figures["sides"]["convoy"]
        self.assertEqual(convoy["train_seconds"]["each"], [20, 40, 50])  # a block of one training has no warm-up
        self.assertEqual(convoy["record_seconds"]["each"], [21.5, 41.5, 51.5])
        self.assertEqual(len(convoy["process_seconds"]["each"]), 3)
        self.assertEqual(len(convoy["tta_accuracy"]["each"]), 5)

    def test_a_side_without_time_leaves_the_results_of_the_others(self):
        (self.directory / "python").write_text(PYTORCH + "time.sleep(60)" + chr(10))
        table, figures = self.compare("--seeds", 2, "--python", self.directory / "python", "--time-limit", 4)
        self.assertEqual(figures["sides"]["convoy"]["train_seconds"]["each"], [10])
        self.assertEqual(list(figures["sides"]), ["convoy"])
        self.assertRegex(table, "pytorch was left out from seed 1 on: python: .*")

    def test_pytorch_that_fails_ends_the_comparison(self):
        (self.directory / "python").write_text(f"#!{sys.executable}" + chr(10) + "import sys; sys.exit(sys.argv[1] != '-c')")
        done = compare("speedrun", "--convoy", self.directory / "convoy-train", "--data", self.directory, "--python",
                       self.directory / "python")
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("compare speedrun: python", done.stderr)

    def test_pytorch_alternates_and_is_drawn(self):
        plot = self.directory / "plot.svg"
        table, figures = self.compare("--seeds", 2, "--python", self.directory / "python", "--plot", plot)
        order = re.findall(r"seed (\d)  (\w+)", table)
        self.assertEqual(order, [("1", "convoy"), ("1", "pytorch"), ("2", "convoy"), ("2", "pytorch")])
        self.assertEqual(figures["sides"]["pytorch"]["train_seconds"]["each"], [40, 40])
        self.assertEqual(len(figures["sides"]["pytorch"]["process_seconds"]["each"]), 2)
        text = plot.read_text()
        self.assertIn("pytorch: mean 84.00 % over 2 seeds", text)
        heights = [float(height) for height in re.findall(r'height="([\d.]+)" fill="#', text)]
        self.assertEqual(sum(height > 0 for height in heights), 3)  # 83 and 84 % here, 84 % twice there


if __name__ == "__main__":
    unittest.main()
