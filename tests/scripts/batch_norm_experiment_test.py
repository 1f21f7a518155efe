"""Tests scripts/batch_norm_experiment.py with a fake of convoy-train."""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "batch_norm_experiment.py"

# Rank 0 writes its arguments to a file, and reports an accuracy that differs between combinations. A shell starts
# sooner than Python.
FAKE_TRAIN = """#!/bin/sh
[ "$RANK" = 0 ] || exit 0
all=$*
while [ $# -gt 0 ]; do
  case $1 in --lr) lr=$2 ;; --augment) augment=$2 ;; --out) out=$2 ;; --sync-bn) sync=1 ;; esac
  shift
done
case $augment in FAILING*) echo "convoy-train: error: planted" >&2; exit 3 ;; esac
echo "$all" >> CALLS
case $lr/$sync in 0.1/1) exit 6 ;; esac
case $WORLD_SIZE/$lr in 1/0.1) accuracy=0.875 ;; 1/*) accuracy=0.75 ;; */0.1) accuracy=0.625 ;; *) accuracy=0.5 ;; esac
mkdir -p "$out"
printf '{"event": "step", "average_loss": 1.5}\\n{"event": "result", "test_accuracy": %s, "test_loss": 1, ' $accuracy \
  > "$out/log.jsonl"
echo '"images_per_second": 10, "steps": 7}' >> "$out/log.jsonl"
"""


class Experiment(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.calls = self.directory / "calls.txt"
        self.train = self.directory / "train"
        self.program(FAKE_TRAIN)

    def program(self, text):
        self.train.write_text(text.replace("CALLS", repr(str(self.calls))))
        self.train.chmod(0o755)

    def run_script(self, *more):
        return subprocess.run([sys.executable, SCRIPT, "--train", self.train, "--data", self.directory, "--out",
                               self.directory / "out", "--datasets", "cifar10", "--ranks", "2", *more],
                              capture_output=True, text=True, check=False)

    def test_trains_each_combination_once(self):
        done = self.run_script()
        self.assertEqual(done.returncode, 0, done.stderr)
        calls = self.calls.read_text().splitlines()
        self.assertEqual(len(calls), 16)
        self.assertEqual(sum("--sync-bn" in call for call in calls), 4)
        self.assertEqual(sum("--bn-buffers mean" in call for call in calls), 4)
        self.assertEqual(sum("resized-crop=" in call for call in calls), 8)
        self.assertEqual(len({call.split(" --out")[0] + call.split("/run")[1] for call in calls}), 16)
        again = self.run_script()
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertEqual(len(self.calls.read_text().splitlines()), 16)
        other = self.run_script("--batch-size", "64")
        self.assertNotEqual(other.returncode, 0)
        self.assertIn("was made with batch_size 32, found 64", other.stderr)

    def test_writes_a_table(self):
        self.run_script()
        table = (self.directory / "out" / "table.md").read_text()
        self.assertIn("| 1 rank | 87.5 | 87.5 | 75.0 | 75.0 |", table)
        self.assertIn("| 2 ranks, own statistics | 62.5 | 62.5 | 50.0 | 50.0 |", table)
        self.assertIn("| 2 ranks, common statistics | 1 diverged | 1 diverged | 50.0 | 50.0 |", table)
        self.assertIn("| 2 ranks, averaged statistics | 62.5 | 62.5 | 50.0 | 50.0 |", table)

    def test_reports_an_error_and_continues_in_the_next_call(self):
        self.program(FAKE_TRAIN.replace("FAILING", "resized-crop"))
        done = self.run_script()
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("convoy-train: error: planted (exit code 3)", done.stderr)
        finished = len(json.loads((self.directory / "out" / "results.json").read_text())["cells"])
        self.program(FAKE_TRAIN)
        self.assertEqual(self.run_script().returncode, 0)
        self.assertEqual(len(self.calls.read_text().splitlines()), 16)
        self.assertEqual(finished, 8)


if __name__ == "__main__":
    unittest.main()
