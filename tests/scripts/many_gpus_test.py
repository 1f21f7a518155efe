#!/usr/bin/env python3
"""Tests scripts/many_gpus.py with fake programs. gpu_rehearsal_test.py runs it with the real ones."""
import contextlib
import io
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import many_gpus  # noqa: E402

# A fake of all programs: prints like them, as fast as the environment says.
FAKE = f"""#!{sys.executable}
import json, os, pathlib, sys
name, ranks, flags = pathlib.Path(sys.argv[0]).name, 1, sys.argv[1:]
prefix = ""
if name == "convoy-launch":
    ranks, name, flags, prefix = int(flags[1]), pathlib.Path(flags[2]).name, flags[3:], "[0]"
if name == os.environ.get("BROKEN"):
    sys.exit(4)
if name == "convoy-bench-allreduce":
    print(prefix + " #       size         count      type   redop    root     time   algbw   busbw  #wrong     time")
    for size, us, busbw in ((8, 21.5, 0.0), (134217728, 600.0, float(os.environ["BUSBW"]))):
        print(f"{{prefix}} {{size:12}} {{size // 4:12}}     float     sum      -1    500.0    0.00    0.00       0"
              f" {{us:8.1f}}    0.00 {{busbw:7.2f}}       0")
if name == "convoy-bench-step":
    assert flags[flags.index("--batch-size") + 1] == str(128 * ranks), flags
    rate = 68000.0 * ranks * (1 if ranks == 1 else float(os.environ["SCALING"]))
    print(f"{{prefix}}   rate    {{rate:,.0f}} images/s (minimum 1, maximum 2)")
if name == "convoy-train":
    out = pathlib.Path(flags[flags.index("--out") + 1])
    out.mkdir()
    (out / "log.jsonl").write_text(json.dumps({{"event": "result", "parameters_hash": os.environ["HASH"] or out.name}}))
"""


class ManyGpus(unittest.TestCase):
    def run_hour(self, build, *flags, **environment):
        with tempfile.TemporaryDirectory() as out:
            command = ["many_gpus.py", "--build", str(build), "--out", out, *flags]
            with mock.patch.object(sys, "argv", command), contextlib.redirect_stdout(io.StringIO()) as printed, \
                    mock.patch.dict(os.environ, {"BUSBW": "400", "SCALING": "0.95", "HASH": "same", **environment}):
                code = many_gpus.main()
            rows = json.loads((pathlib.Path(out) / "results.json").read_text())["figures"]
            files = sorted(path.name for path in pathlib.Path(out).glob("*.txt"))
        return code, printed.getvalue(), rows, files

    def fake(self, *flags, **environment):
        with tempfile.TemporaryDirectory() as build:
            programs = pathlib.Path(build) / "bin"
            programs.mkdir()
            for name in ("launch", "doctor", "bench-allreduce", "bench-step", "train"):
                (programs / f"convoy-{name}").write_text(FAKE)
                (programs / f"convoy-{name}").chmod(0o755)
            return self.run_hour(build, "--links", "nvlink", *flags, **environment)

    def test_all_as_expected(self):
        code, printed, rows, files = self.fake()
        self.assertEqual(code, 0, printed)
        found = {row["name"]: row["found"] for row in rows}
        self.assertEqual((found["bus bandwidth at 134217728 bytes, GB/s"], found["all-reduce of 8 bytes, us"]), (400, 21.5))
        self.assertAlmostEqual(found["of linear scaling"], 0.95)
        self.assertEqual([name for name in found if "default" in name],
                         ["ctas-4, of the default", "ctas-8, of the default", "ctas-16, of the default", "op-by-op, of the default"])
        self.assertEqual(len(files), 10)

    def test_what_is_lower_is_named(self):
        for environment, text in (({"BUSBW": "40"}, "bus bandwidth at 134217728 bytes, GB/s: 40, expected at least 300; nvidia-smi topo"),
                                  ({"SCALING": "0.7"}, "of linear scaling: 0.7, expected at least 0.9; convoy-train --trace"),
                                  ({"HASH": ""}, "results of two deterministic trainings: 2, expected at most 1; NCCL_ALGO")):
            with self.subTest(text):
                code, printed, _, _ = self.fake(**environment)
                self.assertEqual(code, 1)
                self.assertIn(text, printed)

    def test_a_program_that_fails_does_not_stop_the_hour(self):
        code, printed, rows, _ = self.fake(BROKEN="convoy-bench-allreduce")
        self.assertEqual(code, 3)
        self.assertIn("all-reduce: code 4, see ", printed)
        self.assertIn("of linear scaling", {row["name"] for row in rows})

    def test_limits_depend_on_the_links(self):
        self.assertEqual(self.fake("--links", "pcie", BUSBW="12")[0], 0)
        for topology, expected in (("GPU0\tX \tNV18\tNV18\n", True), ("GPU0\tX \tPHB\tSYS\n", False)):
            with mock.patch.object(many_gpus.subprocess, "run", return_value=mock.Mock(stdout=topology)):
                self.assertEqual(many_gpus.has_nvlink(), expected)


if __name__ == "__main__":
    unittest.main()
