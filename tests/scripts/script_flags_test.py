"""Tests that the shell scripts refuse invalid arguments before they install, configure, build or measure anything."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What a script must not have called: these programs are replaced by one that notes its name.
WORK = ("apt-get", "cmake", "ctest", "doxygen", "ip", "mmdebstrap", "mpirun", "ninja", "tc")


class Flags(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        # A tree without a build.
        for name in ("scripts", "bench/python", "bench/speedrun.sh"):
            copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
            (self.root / name).parent.mkdir(exist_ok=True)
            copy(ROOT / name, self.root / name)
        (self.root / "host_rates/bin").mkdir(parents=True)
        shutil.copy("/bin/true", self.root / "host_rates/bin/comm_host_rates")
        self.calls = self.root / "calls"
        for name in WORK:
            tool = self.root / "tools" / name
            tool.parent.mkdir(exist_ok=True)
            tool.write_text(f"#!/bin/sh\necho {name} $* >>{self.calls}\n")
            tool.chmod(0o755)

    def run_script(self, *words):
        environment = {**os.environ, "PATH": f"{self.root}/tools:{os.environ['PATH']}"}
        done = subprocess.run(["bash", *words], cwd=self.root, env=environment, capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertFalse(self.calls.exists() and self.calls.read_text(), (words, done.stderr))
        return done

    def test_invalid_arguments_are_refused_first(self):
        for words, what in (
            ("scripts/validate_gpu.sh --call 3", "--call: invalid choice: '3'"),
            ("scripts/validate_gpu.sh --stages smoke,nonsense", "--stages: found 'nonsense', expected environment"),
            ("scripts/validate_gpu.sh --budget=-1", "--budget: found -1, expected 0 or more seconds"),
            ("scripts/validate_gpu.sh --resume /nowhere", "--resume: /nowhere is not a validation.json"),
            ("scripts/validate_gpu.sh --build /nowhere", "--build: no programs in /nowhere/bin"),
            ("bench/speedrun.sh --seeds 0", "--seeds: found 0, expected 1 or more"),
            ("bench/speedrun.sh --nonsense", "unrecognized arguments: --nonsense"),
            ("scripts/pack_gpu_build.sh Hopper", "ARCHITECTURE: found 'Hopper'"),
            ("scripts/pack_gpu_build.sh 90 /nowhere/file.tar.xz", "FILE: found no directory /nowhere"),
            ("scripts/measure_hosts.sh", "no build directory given"),
            ("scripts/measure_hosts.sh host_rates 1gbit fast", "RATE: found 'fast', expected none or one such as 10gbit"),
            ("scripts/fuzz.sh everything", "found target 'everything'"),
            ("scripts/fuzz.sh manifest 0", "found '0' minutes"),
            ("scripts/fuzz.sh manifest 5 more", "found more, expected TARGET [MINUTES]"),
            ("scripts/package.sh --fast", "found '--fast'"),
            ("scripts/setup.sh --fast", "found '--fast'"),
            ("scripts/test.sh everything", "found 'everything'"),
            ("scripts/lint.sh --cheks", "found '--cheks'"),
            ("scripts/arm64/test.sh --fast", "found '--fast', expected a directory"),
            ("scripts/arm64/test.sh build more", "found more after the directory"),
        ):
            done = self.run_script(*words.split())
            self.assertIn(done.returncode, (1, 2), (words, done.stderr))
            self.assertIn(what, done.stderr)
            self.assertEqual(done.stdout, "", words)

    def test_help_needs_no_build(self):
        for script, what in (("scripts/validate_gpu.sh", "--budget"), ("bench/speedrun.sh", "--first-seed"),
                             ("scripts/pack_gpu_build.sh", "pack_gpu_build.sh [ARCHITECTURE]"),
                             ("scripts/package.sh", "--no-check"), ("scripts/test.sh", "--all")):
            done = self.run_script(script, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), script)
            self.assertIn(what, done.stdout)


if __name__ == "__main__":
    unittest.main()
