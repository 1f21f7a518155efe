"""Tests of bench/python/compare_speedrun.py with programs that print results without training."""

import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "python"

CONVOY = f"""#!{sys.executable}
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


class CompareSpeedrun(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        for name, text in (("convoy-train", CONVOY), ("python", PYTORCH)):
            (self.directory / name).write_text(text)
            (self.directory / name).chmod(0o755)

    def compare(self, *flags):
        done = subprocess.run([sys.executable, "-B", BENCH / "compare_speedrun.py", "--convoy",
                               self.directory / "convoy-train", "--data", self.directory, "--json",
                               self.directory / "out.json", *map(str, flags)], capture_output=True, text=True, check=False)
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

    def test_invalid_flags_are_refused_before_the_first_training(self):
        for flags, what in ((("--seeds", "0"), "--seeds: found 0, expected 1 or more"),
                            (("--block", "0"), "--block: found 0, expected 1 or more"),
                            (("--python-compile", "max-autotune"), "--python-compile: requires --python"),
                            (("--plot", "/nowhere/plot.svg"), "--plot: found no directory /nowhere"),
                            (("--data", "", "--python", "python3"), "--python: requires --data")):
            done = subprocess.run([sys.executable, "-B", BENCH / "compare_speedrun.py", "--convoy", "/nowhere", *flags],
                                  capture_output=True, text=True, check=False)
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn(what, done.stderr)

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
        done = subprocess.run([sys.executable, "-B", BENCH / "compare_speedrun.py", "--convoy", self.directory / "convoy-train",
                               "--data", self.directory, "--python", self.directory / "python"],
                              capture_output=True, text=True, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("compare_speedrun: python", done.stderr)

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
