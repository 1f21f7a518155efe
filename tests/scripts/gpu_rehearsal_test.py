#!/usr/bin/env python3
"""Rehearses on emulated GPUs: the two calls of scripts/validate_gpu.sh for a quarter of an hour of a GPU, and
scripts/many_gpus.py."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What emulated GPUs lack.
MISSING = {"timeline": "CUPTI", "racecheck": "compute-sanitizer", "counters": "ncu"}


@unittest.skipUnless(os.environ.get("CONVOY_BUILD"), "needs CONVOY_BUILD, a build with emulated GPUs")
class Rehearsal(unittest.TestCase):
    def test_both_calls(self):
        with tempfile.TemporaryDirectory() as out:
            out = pathlib.Path(out)
            for call in ("1", "2"):
                command = [ROOT / "scripts" / "validate_gpu.sh", "--build", os.environ["CONVOY_BUILD"], "--quick", "--call", call]
                done = subprocess.run(command, capture_output=True, text=True,
                                      env={**os.environ, "OUT": str(out), "CONVOY_EMULATED_GPUS": "2"})
                self.assertIn(done.returncode, (0, 3), done.stdout + done.stderr)
            stages = json.loads((out / "validation.json").read_text())["stages"]
            for name, entry in stages.items():
                with self.subTest(name):
                    why = " ".join(entry.get("problems", []) + entry.get("left_out", []))
                    self.assertIn(MISSING.get(name, ""), why)
                    self.assertEqual(entry["outcome"], "left out" if why else "passed", why)
                    self.assertTrue(not why or name in MISSING, why)
            self.assertLessEqual({"rate_resnet18_128", "hypothesis", "speedrun", "rate_resnet50_256"}, set(stages))
            self.assertGreaterEqual(len(list((out / "raw" / "hypothesis").glob("*-bash.txt"))), 6)
            self.assertIn("## Hypotheses", (out / "validation.md").read_text())

    def test_many_gpus(self):
        with tempfile.TemporaryDirectory() as out:
            command = [sys.executable, ROOT / "scripts" / "many_gpus.py", "--build", os.environ["CONVOY_BUILD"], "--out", out,
                       "--ranks", "2", "--links", "emulated", "--quick"]
            done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "CONVOY_EMULATED_GPUS": "2"})
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertEqual(len(json.loads((pathlib.Path(out) / "results.json").read_text())["figures"]), 11)


if __name__ == "__main__":
    unittest.main()
