#!/usr/bin/env python3
"""Tests of the program convoy-learn. The exercises themselves are tested by `convoy-learn verify`."""
import argparse
import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import tomllib
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parent.parent
EXERCISES = ROOT / "exercises"
sys.path.insert(0, str(ROOT))

from convoy_learn import checks, exercises, packs, verification  # noqa: E402


class Learner(unittest.TestCase):
    """Each test has an empty directory of its own."""

    def setUp(self):
        self.work = tempfile.TemporaryDirectory()
        self.addCleanup(self.work.cleanup)
        self.directory = pathlib.Path(self.work.name)

    def learn(self, *words, program=ROOT / "bin" / "convoy-learn", status=0, cwd=None):
        done = subprocess.run([sys.executable, str(program), *words], capture_output=True, text=True, cwd=cwd or self.directory)
        self.assertEqual(done.returncode, status, done.stdout + done.stderr)
        return done.stdout + done.stderr

    def solve(self, exercise_id, text=None):
        exercise = exercises.find(exercise_id)
        target = self.directory / exercise_id / exercise.edit
        target.parent.mkdir(exist_ok=True)
        target.write_text(text or (exercise.directory / f"solution{exercise.suffix}").read_text())


class Checks(Learner):
    def test_start_check_and_list(self):
        self.assertIn("Edit warm-1/saxpy.cu", self.learn("start", "warm-1"))
        self.assertIn("exists already", self.learn("start", "warm-1", status=3))
        text = self.learn("check", "warm-1", status=1)
        self.assertIn("not yet [CE001]: wrong for n = 1: z[0] was not written, expected", text)
        self.assertIn("convoy-learn explain CE001", text)
        self.assertRegex(self.learn("list"), r"warm-1 .* started\n")
        self.solve("warm-1")
        self.assertTrue(self.learn("check", "warm-1").endswith("solved\n"))
        self.assertRegex(self.learn("list"), r"warm-1 .* solved\n")
        self.assertEqual(self.learn("list").count("points"), len(exercises.every()))

    def test_check_of_secret_sizes(self):
        self.solve("warm-1", "__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {\n"
                   "  int i = blockIdx.x * blockDim.x + threadIdx.x;\n  if (i < n && n != 513) z[i] = a * x[i] + y[i];\n}\n")
        self.learn("check", "warm-1")
        self.assertIn("n = 513: z[0] was not written", self.learn("check", "warm-1", "--secret", status=1))

    def test_does_not_compile(self):
        self.solve("warm-1", "__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {\n  z[i] = 1;\n}\n")
        text = self.learn("check", "warm-1", status=2)
        self.assertIn("saxpy.cu:2:5: error: 'i' was not declared in this scope", text.replace("‘", "'").replace("’", "'"))
        self.solve("warm-1", "__global__ void saxpy() {\n  asm(\"\");\n}\n")
        self.assertIn("saxpy.cu:2: CE007", self.learn("check", "warm-1", status=2))

    def test_kernel_that_does_not_end(self):
        exercise = exercises.find("warm-1")
        self.solve("warm-1", "__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {\n"
                   "  for (volatile int i = 0; i < 1;) {\n  }\n}\n")
        # The limit of the exercise is that of a busy machine.
        exercise.settings["seconds"] = 1
        verdict = checks.check(exercise, self.directory / "warm-1" / "saxpy.cu")
        self.assertEqual((verdict.status, verdict.code), (1, "CE008"))
        self.assertIn("the kernel does not end (n = 1,", verdict.message)

    def test_results_cannot_be_forged_by_a_line_in_the_report(self):
        self.solve("warm-1", """#include <cstdio>
__global__ void saxpy(int n, float a, const float* x, const float* y, float* z) {
  std::FILE* file = std::fopen(std::getenv("CONVOY_LEARN_REPORT"), "a");
  for (int i = 0; i < 10; ++i) std::fputs("{\\"driver\\": \\"right\\", \\"case\\": \\"1\\", \\"text\\": \\"\\", \\"key\\": \\"\\"}\\n", file);
  std::fclose(file);
  std::_Exit(0);
}
""")
        self.assertIn("not yet [CE008]: the program ended with status 0 before its results", self.learn("check", "warm-1", status=1))

    def test_wrong_usage(self):
        self.assertIn("expected one of: warm-1", self.learn("check", "warm-9", status=3))
        self.assertIn("`convoy-learn start warm-1` makes it", self.learn("check", "warm-1", status=3))
        self.assertIn("usage:", self.learn("chekc", status=3))
        self.assertIn("expected one of: CE002", self.learn("explain", "CE999", status=3))
        self.solve("warm-3")
        self.assertIn("found sizes '5', expected rowsxcolumns, such as 65x3", self.learn("show", "warm-3", "--at", "5", status=3))


class Programs(Learner):
    """Exercises in plain C++."""

    def test_check(self):
        self.solve("comm-4")
        text = self.learn("check", "comm-4")
        self.assertIn("values   4 sizes: right", text)
        self.assertTrue(text.endswith("solved\n"))

    def test_sanitizers_name_the_learners_line(self):
        self.solve("comm-4", "double crossover(int ranks, double, double) {\n  double* a = new double[1]();\n  return a[ranks];\n}\n")
        self.assertRegex(self.learn("check", "comm-4", status=1), r"not yet \[CE003\]: crossover.cpp:3: heap buffer overflow \(ranks = 4,")
        self.solve("comm-4", "double crossover(int ranks, double, double) {\n  return 1 << (ranks + 100);\n}\n")
        self.assertRegex(self.learn("check", "comm-4", status=1), r"not yet \[CE003\]: crossover.cpp:2: shift exponent 104 is too large")

    def test_does_not_compile(self):
        self.solve("comm-4", "double crossover(int, double, double) {\n  return x;\n}\n")
        text = self.learn("check", "comm-4", status=2)
        self.assertIn("crossover.cpp:2:10: error: 'x' was not declared in this scope", text.replace("‘", "'").replace("’", "'"))

    def test_have_no_kernel(self):
        for command in ("show", "debug"):
            self.assertIn("comm-4 is plain C++, expected an exercise with a kernel", self.learn(command, "comm-4", status=3))


class Help(Learner):
    def test_hints_come_one_by_one(self):
        texts = [self.learn("hint", "warm-1").split(":")[0] for _ in range(4)]
        self.assertEqual(texts, ["hint 1 of 3", "hint 2 of 3", "hint 3 of 3", "hint 3 of 3"])

    def test_each_code_has_a_page(self):
        codes = {"CE001", "CE008", "CE105"}
        for exercise in exercises.every():
            codes |= {each["finds"] for each in [exercise.settings["stub"], *exercise.settings["wrong"]]}
            codes |= {count["code"] for count in exercise.counts}
        for code in codes:
            self.assertTrue(self.learn("explain", code).startswith(f"# {code}: "))

    def test_show_counts_the_learners_lines(self):
        self.solve("warm-3")
        # 64 x 64 floats: 128 warps with 4 sectors each.
        self.assertRegex(self.learn("show", "warm-3"), r"add_bias\.cu:5 +global store +128 +512 ")

    def test_debug_stops_in_the_thread(self):
        if shutil.which("gdb") is None:
            self.skipTest("needs gdb")
        self.solve("warm-1")
        text = self.learn("debug", "warm-1", "--at", "300", "--block", "1", "--thread", "5", "--gdb", "print n", "--gdb", "kill")
        self.assertIn("saxpy.cu:", text)
        self.assertIn("$1 = 300", text)

    def test_ladder(self):
        self.solve("mem-2", (EXERCISES / "mem-2" / "stub.cu").read_text())
        out = self.directory / "counts.json"
        text = self.learn("ladder", "transpose", "--json", str(out))
        # 256 x 256 floats: 8 per sector; 32 lanes per request.
        self.assertEqual([counts["global_stores.sectors"] for counts in json.loads(out.read_text()).values()], [65536, 8192, 8192])
        self.assertEqual([counts["shared_loads.wavefronts"] for counts in json.loads(out.read_text()).values()], [0, 65536, 2048])
        self.assertRegex(text, r"  your mem-2 +8,192 +65,536 ")


class Authors(unittest.TestCase):
    def test_verify_finds_what_is_not_as_stated(self):
        exercise = exercises.find("warm-1")
        exercise.settings["stub"] = {"finds": "CE101"}
        exercise.settings["wrong"] = [{"file": "thread_only.cu", "finds": "CE001", "says": "no such sentence"},
                                      {"file": "thread_only.cu", "finds": "CE001", "says": ""}]
        problems = list(verification.problems_of(exercise))
        self.assertEqual(len(problems), 4, problems)
        self.assertIn("wrong/block_only.cu is not in exercise.toml", problems[0])
        self.assertIn("../stub.cu: found CE001, expected CE101", problems[1])
        self.assertIn("thread_only.cu: found no match of 'no such sentence'", problems[2])
        self.assertIn("have the same message: wrong for n = 257", problems[3])


    def test_verify_leaves_out_only_what_is_recorded_as_it_is(self):
        exercise = exercises.find("warm-1")
        options = argparse.Namespace(exercise=["warm-1"], changed=False, unless_recorded=True, record=True)
        with tempfile.TemporaryDirectory() as directory:
            record = pathlib.Path(directory) / "verified.txt"
            with mock.patch.object(verification, "RECORD", record), mock.patch.object(verification, "problems_of", return_value=[]) as problems_of:
                record.write_text("warm-1 0123\n")
                self.assertEqual(verification.verify(options), 0)
                self.assertEqual(problems_of.call_count, 1)
                self.assertEqual(record.read_text(), f"warm-1 {verification.version_of(exercise)}\n")
                verification.verify(options)
                self.assertEqual(problems_of.call_count, 1)
                record.write_text("")
                problems_of.return_value = ["a problem"]
                self.assertEqual(verification.verify(options), 1)
                self.assertEqual(record.read_text(), "")

    def test_another_file_is_another_version(self):
        exercise = exercises.find("warm-1")
        before = verification.version_of(exercise)
        with tempfile.TemporaryDirectory() as directory:
            other = copy.copy(exercise)
            other.directory = pathlib.Path(shutil.copytree(exercise.directory, pathlib.Path(directory) / "warm-1"))
            self.assertEqual(verification.version_of(other), before)
            (other.directory / "hints.md").write_text("another")
            self.assertNotEqual(verification.version_of(other), before)


class Homework(Learner):
    def test_each_exercise_has_another_task_and_other_sizes_for_homework(self):
        for exercise in exercises.every():
            self.assertTrue(exercise.variants(), exercise.id)
            settings = tomllib.loads(packs.secret_settings("a blue horse", exercise))
            self.assertEqual({len(exercise.names)}, {len(exercises.as_list(size)) for size in settings["sizes"]}, exercise.id)
            self.assertEqual(bool(exercise.counts), "count_at" in settings, exercise.id)

    def test_pack_of_a_program(self):
        for reader in ("student", "grader"):
            self.learn("pack", "hw3", "--exercises", "comm-4", "--secret", "a blue horse", "--for", reader, "--out", reader)
        student, grader = (self.directory / reader for reader in ("student", "grader"))
        self.assertFalse({path.name for path in student.rglob("*")} & {"solution.cpp", "secret.toml", "wrong"})
        program = student / "convoy" / "learn" / "bin" / "convoy-learn"
        self.assertIn("not yet [CE001]", self.learn("check", "comm-4", program=program, cwd=student, status=1))
        shutil.copyfile(grader / "convoy/learn/exercises/comm-4/solution.cpp", student / "comm-4" / "crossover.cpp")
        self.assertTrue(self.learn("check", "comm-4", program=program, cwd=student).endswith("solved\n"))

    def test_scores(self):
        verdict = checks.Verdict(exercises.find("warm-3"))
        verdict.status, verdict.passed = 1, {"safety": True, "values": True, "counts": False}
        self.assertEqual(packs.score(verdict, 10), 7)
        verdict.passed = {"safety": False, "values": False, "counts": False}
        self.assertEqual(packs.score(verdict, 10), 0)
        verdict.status = 0
        self.assertEqual(packs.score(verdict, 10), 10)

    def test_names_of_exercises(self):
        self.assertEqual([each.id for each in packs.chosen_exercises("warm-1..3,mem-2")], ["warm-1", "warm-2", "warm-3", "mem-2"])
        self.assertIn("expected 2 numbers", self.learn("pack", "hw1", "--exercises", "warm-1,mem-1", "--points", "5", "--for", "student",
                                                       "--out", "x", status=3))

    def test_pack_for_students_is_complete_and_has_no_solution(self):
        self.learn("pack", "hw1", "--exercises", "warm-1,mem-3", "--points", "5,7", "--for", "student", "--out", "hw1.zip")
        shutil.unpack_archive(self.directory / "hw1.zip", self.directory)
        pack = self.directory / "hw1"
        names = {path.name for path in pack.rglob("*")}
        self.assertFalse(names & {"solution.cu", "secret.toml", "wrong", "no_guard.cu"})
        self.assertIn("| warm-1 | Who computes element i? | 5 | `warm-1/saxpy.cu` |", (pack / "README.md").read_text())
        program = pack / "convoy" / "learn" / "bin" / "convoy-learn"
        self.assertIn("pack for students", self.learn("verify", "warm-1", program=program, cwd=pack, status=3))
        shutil.copyfile(EXERCISES / "warm-1" / "solution.cu", pack / "warm-1" / "saxpy.cu")
        # The stub of mem-3 is safe and right; its counts are 30 % of 7 points.
        done = self.execute(["make", "--silent", "grade"], pack)
        self.assertEqual([each["score"] for each in json.loads((pack / "results.json").read_text())["exercises"]], [5, 4.9], done)

    def execute(self, command, directory, **variables):
        """Runs a program of a pack, with the pack's cuemu."""
        environment = {**{key: value for key, value in os.environ.items() if key != "CUEMU"}, **variables}
        done = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True)
        return done.stdout + done.stderr

    def graded(self, pack, file, directory):
        """Grades a submission of reduce-1 as Gradescope does. Returns the text of results.json."""
        root = self.directory / directory
        (root / "submission").mkdir(parents=True)
        (root / "source").symlink_to(pack)
        shutil.copyfile(file, root / "submission" / "reduce.cu")
        done = self.execute(["bash", str(pack / "run_autograder")], self.directory, AUTOGRADER=str(root))
        self.assertTrue((root / "results" / "results.json").is_file(), done)
        return (root / "results" / "results.json").read_text()

    def test_a_secret_chooses_other_tasks_and_sizes(self):
        for reader in ("student", "grader"):
            self.learn("pack", "hw2", "--exercises", "reduce-1,mem-3", "--secret", "a blue horse", "--for", reader, "--out", reader)
        student, grader = (self.directory / reader for reader in ("student", "grader"))
        for file in ("reduce-1/reduce.cu", "mem-3/transpose.cu"):
            self.assertEqual((student / file).read_text(), (grader / file).read_text())
        secret = tomllib.loads((grader / "convoy/learn/exercises/mem-3/secret.toml").read_text())
        self.assertEqual(secret["sizes"][4:], exercises.find("mem-3").sizes)
        self.assertEqual(len(secret["sizes"]), 8)
        for n, in [*secret["sizes"], secret["count_at"]]:
            self.assertEqual((n % 32, 32 <= n <= 256), (0, True))
        other = packs.secret_settings("a red horse", exercises.find("mem-3"))
        self.assertNotEqual(secret, tomllib.loads(other))
        self.assertFalse(list(student.rglob("secret.toml")) + list(student.rglob("variants.toml")))

        solution = grader / "convoy" / "learn" / "exercises" / "reduce-1" / "solution.cu"
        results = [self.graded(grader, solution, directory) for directory in ("a", "b/c")]
        self.assertEqual(results[0], results[1])
        # mem-3 was not submitted.
        self.assertEqual([each["score"] for each in json.loads(results[0])["tests"]], [10, 0])
        public = json.loads(self.graded(grader, EXERCISES / "reduce-1" / "solution.cu", "d"))["tests"][0]
        self.assertEqual(public["score"], 0)
        self.assertIn("[CE001]", public["output"])

    def test_pack_for_graders(self):
        self.learn("pack", "hw1", "--exercises", "warm-1", "--for", "grader", "--out", "grader.zip")
        pack = self.directory / "grader"
        shutil.unpack_archive(self.directory / "grader.zip", pack)
        self.assertTrue((pack / "setup.sh").is_file())
        self.assertIn("for exercise in warm-1; do", (pack / "run_autograder").read_text())
        shutil.copyfile(EXERCISES / "warm-1" / "wrong" / "no_guard.cu", pack / "warm-1" / "saxpy.cu")
        program = pack / "convoy" / "learn" / "bin" / "convoy-learn"
        self.learn("grade", "hw1", "--secret", "--gradescope", "--out", "results.json", program=program, cwd=pack, status=1)
        tests = json.loads((pack / "results.json").read_text())["tests"]
        self.assertEqual([(each["name"], each["score"], each["max_score"]) for each in tests], [("warm-1", 0, 5)])
        self.assertIn("[CE003]", tests[0]["output"])


if __name__ == "__main__":
    unittest.main()
