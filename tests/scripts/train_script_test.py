"""Tests of scripts/train.sh, in a small project whose program prints its arguments instead of training."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]

CMAKE = """cmake_minimum_required(VERSION 3.25)
project(small NONE)
foreach(name IN ITEMS {targets})
  add_custom_target(${{name}} COMMAND ${{CMAKE_COMMAND}} -E make_directory ${{CMAKE_BINARY_DIR}}/bin
                             COMMAND ${{CMAKE_COMMAND}} -E copy ${{CMAKE_SOURCE_DIR}}/program ${{CMAKE_BINARY_DIR}}/bin/${{name}})
endforeach()
add_custom_target(broken ALL COMMAND false)  # train.sh builds the named targets alone
"""


def built_targets():
    """The targets that train.sh builds."""
    script = (ROOT / "scripts" / "train.sh").read_text()
    return re.search(r"^programs=\(([^)]*)\)$", script, re.MULTILINE).group(1).split()


class TrainScript(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)
        (self.root / "scripts").mkdir()
        for name in ("train.sh", "lib.sh"):
            shutil.copy(ROOT / "scripts" / name, self.root / "scripts")
        # Packages are installed already where tests run.
        self.write_program(self.root / "scripts" / "setup.sh", "#!/bin/sh\n")
        self.write_program(self.root / "program", '#!/bin/sh\nprintf "%s\\n" "$(basename "$0")" "$@"\nexit 3\n')
        (self.root / "CMakeLists.txt").write_text(CMAKE.format(targets=" ".join(built_targets())))
        presets = [
            {"name": name, "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}"}
            for name in ("release", "cuda")
        ]
        (self.root / "CMakePresets.json").write_text(json.dumps({"version": 6, "configurePresets": presets}))
        # No GPU: train.sh then builds the preset release.
        tools = self.root / "tools"
        tools.mkdir()
        self.write_program(tools / "nvidia-smi", "#!/bin/sh\nexit 9\n")
        self.environment = {**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"}

    @staticmethod
    def write_program(path, text):
        path.write_text(text)
        path.chmod(0o755)

    def train(self, *arguments):
        return subprocess.run(
            [self.root / "scripts" / "train.sh", *arguments],
            env=self.environment, capture_output=True, text=True, timeout=60, check=False,
        )

    def test_builds_and_runs_the_training(self):
        result = self.train("--epochs", "2")
        self.assertEqual(result.stdout.split(), ["convoy-train", "--fallback-shapes", "--epochs", "2", "--resume", "auto", "--model", "speedrun-small"])
        self.assertEqual(result.returncode, 3, result.stderr)  # that of the program
        self.assertIn(f"programs: {self.root}/build/release/bin", result.stderr)
        built = sorted(path.name for path in (self.root / "build" / "release" / "bin").iterdir())
        self.assertEqual(built, sorted(built_targets()))

    def test_a_given_resume_stays(self):
        result = self.train("--resume", "out/run", "--model", "lenet")
        self.assertEqual(result.stdout.split(),
                         ["convoy-train", "--fallback-shapes", "--resume", "out/run", "--model", "lenet"])

    def test_a_given_model_or_configuration_stays(self):
        for arguments in (["--model=lenet"], ["--config", "config.toml"]):
            result = self.train(*arguments)
            self.assertEqual(result.stdout.split(),
                             ["convoy-train", "--fallback-shapes", *arguments, "--resume", "auto"])

    def test_a_failed_build_shows_the_end_of_its_output(self):
        (self.root / "program").unlink()
        result = self.train()
        self.assertEqual(result.returncode, 1)
        self.assertIn("building release failed; the whole output is in", result.stderr)
        self.assertEqual(result.stdout, "")

    def test_the_targets_are_those_of_the_programs(self):
        declared = " ".join(path.read_text() for path in (*ROOT.glob("apps/CMakeLists.txt"), ROOT / "bench" / "CMakeLists.txt"))
        for target in built_targets():
            self.assertRegex(declared, rf"(target_sources\(|examples/|add_executable\(){re.escape(target)}[. ]")


if __name__ == "__main__":
    unittest.main()
