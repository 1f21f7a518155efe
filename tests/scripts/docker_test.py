#!/usr/bin/env python3
"""Tests of scripts/docker: what the Dockerfiles name exists, and run_steps.py parses, copies and refuses."""

import json
import os
import pathlib
import re
import shlex
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "docker"))
import run_steps  # noqa: E402

DOCKERFILES = [ROOT / "scripts" / "docker" / name for name in ("Dockerfile", "Dockerfile.cuda")]
# Programs that come with the Debian packages of setup.sh or with the base image.
SYSTEM_PROGRAMS = {"apt-get", "rm", "cmake", "cpack"}


def commands_of(step):
    return [shlex.split(command) for command in step.text.split("&&")]


def preset(name):
    """Returns a configure preset with what it inherits, and its build directory."""
    presets = {each["name"]: each for each in json.loads((ROOT / "CMakePresets.json").read_text())["configurePresets"]}
    own = presets[name]
    base = presets[own["inherits"]] if "inherits" in own else {}
    directory = (own | {"binaryDir": base.get("binaryDir", "")})["binaryDir"]
    return directory.replace("${sourceDir}/", "").replace("${presetName}", name)


def cmake_variables():
    text = "\n".join(path.read_text() for path in ROOT.glob("cmake/*.cmake")) + (ROOT / "CMakeLists.txt").read_text()
    text += "\n".join(path.read_text() for path in ROOT.glob("*/CMakeLists.txt"))
    return set(re.findall(r"(?:option\(|set\()(\w+)", text))


class Dockerfiles(unittest.TestCase):
    def test_name_only_what_exists(self):
        for file in DOCKERFILES:
            stages, directories = set(), set()
            for step in run_steps.parse(file.read_text()):
                with self.subTest(file=file.name, line=step.line, step=str(step)):
                    if step.keyword == "FROM":
                        image, name = run_steps.image_of(step)
                        self.assertRegex(image, r"^(debian:12-slim|nvidia/cuda:[\d.]+-cudnn-(devel|runtime)-ubuntu24\.04)$")
                        stages.add(name)
                    elif step.keyword == "COPY":
                        stage, sources, _ = run_steps.copy_of(step)
                        self.assertTrue(stage in stages if stage else sources == ["."])
                    elif step.keyword == "RUN":
                        for words in commands_of(step):
                            self.check_command(words, directories)
                    elif step.keyword == "CMD":
                        program = json.loads(step.text)[0]
                        self.assertRegex((ROOT / "apps" / "CMakeLists.txt").read_text(), rf"\b{program}\b")
            self.assertTrue(directories, "no step configures")

    def check_command(self, words, directories):
        if words[0].startswith("scripts/"):
            self.assertTrue(os.access(ROOT / words[0], os.X_OK))
            return
        self.assertIn(words[0], SYSTEM_PROGRAMS)
        if words[:2] == ["cmake", "--preset"]:
            directories.add(preset(words[2]))
            for word in words[3:]:
                name = re.fullmatch(r"-D(\w+)=.*", word)
                self.assertTrue(name, word)
                self.assertIn(name[1], cmake_variables())
        elif words[0] == "cmake":
            self.assertEqual(words[1], "--build")
            self.assertIn(words[2], directories)
            self.assertEqual(len(words), 3, "a target")
        elif words[0] == "cpack":
            options = dict(zip(words[1::2], words[2::2]))
            self.assertIn(options["--config"].removesuffix("/CPackConfig.cmake"), directories)
            installed = (ROOT / "scripts" / "setup.sh").read_text().split("packages=(")[1].split("\n\n")[0]
            for package in ("dpkg-dev", "file"):  # with which cpack finds the libraries that the programs need
                self.assertRegex(installed, rf"(?m)^[^#]*\b{package}\b")

    def test_image_installs_the_packages_that_the_build_copies(self):
        for file in DOCKERFILES:
            steps = run_steps.parse(file.read_text())
            made = next(options[options.index("-B") + 1] for step in steps if step.keyword == "RUN"
                        for options in commands_of(step) if options[0] == "cpack")
            stage, sources, target = next(run_steps.copy_of(step) for step in steps if "--from" in step.text)
            self.assertEqual(sources, [f"{made}/*.deb"])
            self.assertTrue(any(f"{target}*.deb" in step.text for step in steps if step.keyword == "RUN"))

    def test_repository_is_copied_without_builds(self):
        patterns = (ROOT / ".dockerignore").read_text().split()
        for path in ("build", "data", "runs", ".git"):
            self.assertTrue(run_steps.is_ignored(path, patterns))
        self.assertFalse(run_steps.is_ignored("kernels/build.h", patterns))


class Parser(unittest.TestCase):
    def test_joins_lines(self):
        steps = run_steps.parse("# a comment\nFROM debian:12 AS one\n\nRUN a \\\n # within\n && b\nENV A=1 B=2\n")
        self.assertEqual([(step.keyword, step.text, step.line) for step in steps],
                         [("FROM", "debian:12 AS one", 2), ("RUN", "a && b", 4), ("ENV", "A=1 B=2", 7)])
        self.assertEqual(run_steps.image_of(steps[0]), ("debian:12", "one"))

    def test_refuses_what_it_does_not_run(self):
        for text, message in (("FROM debian:12\nADD x y\n", "line 2: found 'ADD'"), ("RUN a\n", "is not FROM"), ("", "is not FROM"),
                              ("FROM debian:12\nRUN a \\\n", "line 2: the last line")):
            with self.assertRaisesRegex(run_steps.StepError, message):
                run_steps.parse(text)
        with self.assertRaisesRegex(run_steps.StepError, "--base nvidia/cuda:13=debian:12"):
            run_steps.suite_of("nvidia/cuda:13")
        with self.assertRaisesRegex(run_steps.StepError, "COPY"):
            run_steps.copy_of(run_steps.Step("COPY", "--chown=1 a b", 1))


class Runner(unittest.TestCase):
    """Steps that need no root file system."""

    def setUp(self):
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.work = pathlib.Path(self.directory.name)
        self.runner = run_steps.Runner(self.work, {}, {"make image": "mkdir -p $ROOT/packages && touch $ROOT/packages/a.deb"})
        for name in ("build", "image"):
            self.runner.stages.append(run_steps.Stage(self.work / name))
            self.runner.names[name] = self.runner.stages[-1]

    def run_steps(self, text):
        for step in run_steps.parse("FROM debian:12\n" + text)[1:]:
            self.runner.run(step)

    def test_copies_files_of_the_repository_and_of_stages(self):
        self.run_steps("WORKDIR /convoy\nCOPY . .\n")
        self.assertTrue((self.work / "image" / "convoy" / "CMakeLists.txt").exists())
        self.assertFalse((self.work / "image" / "convoy" / "build").exists())
        (self.work / "build" / "packages").mkdir(parents=True)
        (self.work / "build" / "packages" / "convoy.deb").write_text("package")
        self.run_steps("COPY --from=build /packages/*.deb /packages/\n")
        self.assertEqual((self.work / "image" / "packages" / "convoy.deb").read_text(), "package")
        with self.assertRaisesRegex(run_steps.StepError, "no such file in the stage build"):
            self.run_steps("COPY --from=build /absent/*.deb /packages/\n")

    def test_keeps_settings_and_replaces_steps(self):
        self.run_steps("ENV A=1 B='2 3'\nUSER user1\nWORKDIR /a\nWORKDIR b\nRUN make image && b\nCMD [\"a\", \"b\"]\n")
        stage = self.runner.stages[-1]
        self.assertEqual((stage.environment, stage.user, stage.directory), ({"A": "1", "B": "2 3"}, "user1", "/a/b"))
        self.assertTrue((self.work / "image" / "packages" / "a.deb").exists())
        self.assertEqual((self.runner.replaced, self.runner.last_command), (1, ["a", "b"]))


if __name__ == "__main__":
    unittest.main()
