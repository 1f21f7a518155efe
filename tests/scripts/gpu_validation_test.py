#!/usr/bin/env python3
"""Tests the parts of scripts/validate_gpu.py that need no GPU: reports, goals, resuming, and the table."""
import contextlib
import functools
import io
import json
import math
import os
import pathlib
import sys
import tempfile
import time
import types
import unittest
from unittest import mock

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "bench" / "python")]
import generated_images  # noqa: E402
import validate_gpu  # noqa: E402
from comparisons import harness, step  # noqa: E402
from gpu_validation import bandwidth, build, clocks, counters, device_tests, environment, hopper, hypothesis  # noqa: E402
from gpu_validation import losses, nccl, rates, report, smoke, speedrun, timeline, training  # noqa: E402
from gpu_validation.work import Failed, NotHere, Work, outcome_of  # noqa: E402

LISTING = """Running main() from gtest_main.cc
CudaReduce/0.  # TypeParam = float
  SumOfRows
  Norm
KernelRows.
  RunOnTheCpu
  RunOnAGpu
Sizes/Loader.
  Shards/0  # GetParam() = 4
"""


def work(seconds=100, programs="/nowhere"):
    return Work(programs, seconds, sys.executable)


class Stages(unittest.TestCase):
    def test_a_failed_part_does_not_stop_the_others(self):
        def stage(work):
            def fail():
                raise Failed("it is 3, expected 4")

            work.trial("first", fail)
            work.trial("second", lambda: work.found.update(second=1))

        entry = outcome_of(stage, work())
        self.assertEqual((entry["outcome"], entry["problems"], entry["found"]),
                         ("failed", ["first: it is 3, expected 4"], {"second": 1}))

    def test_concurrent_parts_all_report(self):
        def stage(work):
            def part(i):
                if i % 2:
                    raise Failed("odd")
                work.found[i] = True

            work.trials({str(i): functools.partial(part, i) for i in range(6)}, concurrent_parts=3)

        entry = outcome_of(stage, work())
        self.assertEqual((sorted(entry["problems"]), sorted(entry["found"])),
                         (["1: odd", "3: odd", "5: odd"], [0, 2, 4]))

    def test_a_missing_requirement_is_not_a_failure(self):
        def stage(_):
            raise NotHere("no PyTorch")

        entry = outcome_of(stage, work())
        self.assertEqual((entry["outcome"], entry["left_out"]), ("left out", ["no PyTorch"]))

    def test_a_part_without_time_is_left_out(self):
        entry = outcome_of(lambda work: work.trial("late", lambda: self.fail("was run")), work(seconds=0))
        self.assertEqual(entry["left_out"], ["late: no time left"])

    def test_a_process_is_killed_at_its_time_limit(self):
        with self.assertRaisesRegex(Failed, "sleep: not done after"):
            work(seconds=0.5).run(["sleep", "5"])
        with self.assertRaisesRegex(Failed, "No such file"):
            work().run(["/nowhere/program"])

    def test_the_children_of_a_killed_process_end_too(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory) / "child"
            with self.assertRaises(Failed):
                work(seconds=2).run(["sh", "-c", f"sleep 60 & echo $! > {file}; wait"])
            child = pathlib.Path("/proc", file.read_text().strip(), "stat")
            for _ in range(100):  # until init has reaped it, where there is one
                if not child.exists() or child.read_text().split()[2] == "Z":
                    return
                time.sleep(0.05)
        self.fail("the child is alive")

    def test_exit_codes(self):
        self.assertEqual([validate_gpu.exit_code(outcomes) for outcomes in
                          (["passed"], ["passed", "left out"], ["left out", "failed"])], [0, 3, 1])


class Resuming(unittest.TestCase):
    """The whole program with fake stages."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        (self.directory / "bin").mkdir()
        program = self.directory / "bin" / "convoy-train"
        program.write_text("#!/bin/sh\necho convoy-train 9.9\n")
        program.chmod(0o755)
        self.runs = []
        self.breaks = True

    def validate(self, *flags):
        def first(work):
            self.runs.append("first")

        def second(work):
            self.runs.append("second")
            if self.breaks:
                raise Failed("broken")

        command = ["validate_gpu.py", "--build", str(self.directory), "--out", str(self.directory / "out"), *flags]
        with mock.patch.object(validate_gpu, "STAGES", (("first", first, 9), ("second", second, 9))), \
                mock.patch.object(sys, "argv", command), mock.patch.dict(os.environ, CONVOY_EMULATED_GPUS="1"), \
                contextlib.redirect_stdout(io.StringIO()):
            return validate_gpu.main()

    def stages(self):
        return json.loads((self.directory / "out" / "validation.json").read_text())["stages"]

    def test_passed_stages_are_not_run_again(self):
        self.assertEqual(self.validate(), 1)
        self.breaks = False
        self.assertEqual(self.validate(), 0)
        self.assertEqual(self.runs, ["first", "second", "second"])
        self.validate("--again")
        self.assertEqual(self.runs[3:], ["first", "second"])

    def test_other_stages_keep_their_results(self):
        self.validate()
        self.breaks = False
        self.assertEqual(self.validate("--stages", "second"), 0)
        self.assertEqual({name: entry["outcome"] for name, entry in self.stages().items()},
                         {"first": "passed", "second": "passed"})

    def test_the_next_call_continues_after_a_timeout(self):
        self.assertEqual(self.validate("--budget", "0"), 3)
        self.assertEqual(self.stages()["second"]["outcome"], "left out")
        self.breaks = False
        self.assertEqual(self.validate(), 0)
        self.assertEqual(self.runs, ["first", "second"])

    def test_results_of_another_directory_are_resumed(self):
        self.validate()
        (self.directory / "out" / "validation.json").rename(self.directory / "earlier.json")
        self.breaks = False
        self.assertEqual(self.validate("--resume", str(self.directory / "earlier.json")), 0)
        self.assertEqual(self.runs, ["first", "second", "second"])
        self.assertEqual({name: entry["outcome"] for name, entry in self.stages().items()},
                         {"first": "passed", "second": "passed"})
        for text in (None, "{", "[]", "{}"):
            with self.subTest(text), contextlib.redirect_stderr(io.StringIO()) as error:
                wrong = self.directory / "wrong.json"
                if text:
                    wrong.write_text(text)
                with self.assertRaises(SystemExit):
                    self.validate("--resume", str(wrong))
                self.assertIn(f"--resume: {wrong} is not a validation.json", error.getvalue())

    def test_a_stage_that_has_less_than_half_of_its_time_is_left_out(self):
        self.assertEqual(self.validate("--budget", "4"), 3)  # both stages may take 9 s
        self.assertEqual(self.runs, [])
        self.assertEqual(self.stages()["first"]["left_out"], ["it takes up to 9 s; another call continues here"])

    def test_the_table_is_written(self):
        self.validate()
        table = (self.directory / "out" / "validation.md").read_text()
        self.assertIn("# emulated GPU", table)
        self.assertIn("convoy-train 9.9", table)
        self.assertIn("| second | failed: broken |", table)


    def test_all_output_is_kept(self):
        def talks(work):
            work.run(["sh", "-c", "echo spoken; echo complained >&2; exit 7"])
            with contextlib.suppress(Failed):
                work.run(["sh", "-c", "echo early; sleep 60"], 0.5)
            work.keep("nodes one.csv", b"1,2")

        command = ["validate_gpu.py", "--build", str(self.directory)]
        with mock.patch.object(validate_gpu, "STAGES", (("talks", talks, 9),)), mock.patch.object(sys, "argv", command), \
                mock.patch.dict(os.environ, CONVOY_EMULATED_GPUS="1", OUT=str(self.directory / "kept")), \
                contextlib.redirect_stdout(io.StringIO()):
            self.assertEqual(validate_gpu.main(), 0)
        raw = sorted((self.directory / "kept" / "raw" / "talks").iterdir())
        self.assertEqual([path.name for path in raw], ["000-sh.txt", "001-sh.txt", "002-nodes-one.csv"])
        for word in ("$ sh -c", "spoken\n", "complained\n", "[code 7]"):
            self.assertIn(word, raw[0].read_text())
        self.assertIn("early\n", raw[1].read_text())

    def test_a_call_that_is_killed_keeps_the_stages_before(self):
        self.validate()
        before = self.stages()
        with mock.patch.object(pathlib.Path, "replace", side_effect=KeyboardInterrupt), self.assertRaises(KeyboardInterrupt):
            self.validate("--again")
        self.assertEqual(self.stages(), before)


class Calls(unittest.TestCase):
    """Two calls on a machine for a quarter of an hour."""

    def parse(self, *flags):
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "bin" / "convoy-train"
            program.parent.mkdir()
            program.touch()
            with mock.patch.object(sys, "argv", ["validate_gpu.py", "--build", directory, *flags]), \
                    contextlib.redirect_stderr(io.StringIO()) as error:
                try:
                    return validate_gpu.parse([name for name, _, _ in validate_gpu.STAGES])
                except SystemExit:
                    return error.getvalue()

    def test_each_call_fits_its_time(self):
        names = {name for name, _, _ in validate_gpu.STAGES}
        for call, limits in validate_gpu.CALLS.items():
            options = self.parse("--call", call)
            self.assertEqual((options.budget, options.stages), (validate_gpu.CALL_SECONDS, list(limits)))
            self.assertLessEqual(sum(limits.values()), validate_gpu.CALL_SECONDS)
            self.assertLessEqual(set(limits), names)
        # Two starts of a machine, and time to read the results of the first call.
        self.assertLessEqual(2 * (validate_gpu.CALL_SECONDS + 75) + 90, 900)

    def test_flags_that_contradict_each_other(self):
        self.assertIn("--stages: found it with --call, expected one of both", self.parse("--call", "1", "--stages", "build"))
        self.assertIn("--questioned: found 'rate', expected environment", self.parse("--questioned", "rate"))
        self.assertIn("--hypotheses: no file /nowhere", self.parse("--hypotheses", "/nowhere"))

    def test_limits_of_a_call_reach_the_stages(self):
        seen = {}

        def stage(work):
            seen.update(left=work.left(), **work.options)

        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            (directory / "bin").mkdir()
            (directory / "bin" / "convoy-train").write_text("#!/bin/sh\necho 1\n")
            (directory / "bin" / "convoy-train").chmod(0o755)
            (directory / "h200").mkdir()
            (directory / "h200" / "pytorch.json").write_text('{"one": 1}')
            with mock.patch.object(validate_gpu, "STAGES", (("one", stage, 300), ("other", stage, 300))), \
                    mock.patch.dict(validate_gpu.CALLS, {"1": {"one": 20}}), \
                    mock.patch.object(validate_gpu, "RESULTS", directory), \
                    mock.patch.object(environment, "gpu_name", lambda _: "NVIDIA H200"), \
                    mock.patch.object(clocks, "start", lambda _: None), contextlib.redirect_stdout(io.StringIO()), \
                    mock.patch.object(sys, "argv", ["", "--build", str(directory), "--call", "1", "--questioned", "one",
                                                    "--out", str(directory / "out")]):
                self.assertEqual(validate_gpu.main(), 0)
        self.assertLess(seen.pop("left"), 20)
        self.assertEqual(seen, {"pytorch": {"one": 1}, "questioned": ["one"], "hypotheses": None})


class Hypotheses(unittest.TestCase):
    def test_the_committed_file(self):
        found = hypothesis.read(hypothesis.FILE.read_text())
        self.assertGreaterEqual(len(found), 3)
        for each in found:
            for command in each.commands:
                self.assertIn("$BIN/convoy-bench-step --device cuda", command)

    def test_lines_that_are_no_hypotheses(self):
        for line in ("a | b", "a | fast | x | y", "a | 1 | x | y | z"):
            with self.subTest(line), self.assertRaisesRegex(Failed, "line 2: found"):
                hypothesis.read("# text\n" + line)

    def test_verdicts(self):
        self.assertEqual([hypothesis.verdict(1.1, ratios) for ratios in ([1.2, 1.1], [1.0, 1.05], [1.05, 1.2])],
                         ["confirmed", "refuted", "unclear"])

    def test_commands_alternate(self):
        with tempfile.TemporaryDirectory() as directory:
            log = pathlib.Path(directory) / "log"
            questions = pathlib.Path(directory) / "questions"
            says = "echo {0} >> " + str(log) + "; echo 'step  {1} ms (1 to 2)'"
            questions.write_text(f"twice | 1.5 | {says.format('a', '1,004.0')} | {says.format('b', '502.0')}\n"
                                 "broken | 1 | exit 3 | true\n")
            asked = Work("/nowhere", 100, sys.executable, hypotheses=questions)
            with mock.patch.object(hypothesis, "need_device"), mock.patch.object(hypothesis, "PAIRS", 3):
                entry = outcome_of(hypothesis.run, asked)
            self.assertEqual(log.read_text().split(), ["a", "b"] * 3)
        self.assertEqual(entry["problems"], ["broken: 'exit 3' ended with code 3: no output"])
        found = entry["found"]["twice"]
        self.assertEqual((found["verdict"], found["ratio"], found["pairs"], found["b"]["ms"]), ("confirmed", 2.0, 3, 502.0))
        table = report.hypothesis(entry["found"])
        self.assertIn("| twice | 1,004 | 502.000 | 2.000 | 2.000 | 2.000 | 3 | 1.500 | confirmed |", table)

    def test_the_figure_is_that_of_the_program(self):
        text = "| rate   | 68,000 images/s |\n| step   | 1.866 ms (1.866 to 1.867) |\n| step | 1.9 | 100.0 |\n"
        self.assertEqual(hypothesis.FIGURE.findall(text), ["1.866"])


class Hopper(unittest.TestCase):
    """The stage with programs that print what those of the tree do."""

    def stage(self, directory, bench, quick=False, test="exit 0"):
        programs = pathlib.Path(directory)
        for name, text in (("test", test), ("bench", bench)):
            (programs / f"hopper_convolution_{name}").write_text(f"#!/bin/sh\n{text}\n")
            (programs / f"hopper_convolution_{name}").chmod(0o755)
        with mock.patch.object(hopper, "need_device"):
            return outcome_of(hopper.run, Work(programs, 100, sys.executable, quick))

    def test_reads_times_and_reports_them(self):
        line = "echo ' 8x8  256 channels  filter    hopper     10.00 us    966 TFLOP/s  cudnn     15.50 us    623 TFLOP/s'"
        with tempfile.TemporaryDirectory() as directory:
            entry = self.stage(directory, line)
        self.assertEqual(entry["found"], {"8x8 256 channels filter": {"us": 10, "cudnn us": 15.5, "ratio": 1.55}})
        self.assertIn("| 8x8 256 channels filter | 10.00 | 15.50 | 1.55 |", "\n".join(report.hopper(entry["found"])))

    def test_failures(self):
        with tempfile.TemporaryDirectory() as directory:
            self.assertEqual(self.stage(directory, "exit 0", test="echo wrong >&2; exit 1")["problems"],
                             ["hopper_convolution_test ended with code 1: wrong"])
            self.assertEqual(self.stage(directory, "echo step")["problems"], ["hopper_convolution_bench has printed no times"])
        with tempfile.TemporaryDirectory() as directory, mock.patch.object(hopper, "need_device"):
            entry = outcome_of(hopper.run, Work(directory, 100, sys.executable))
            self.assertEqual(entry["left_out"], ["no hopper_convolution_test among the programs"])


class Timelines(unittest.TestCase):
    TABLE = ("begin_ns,end_ns,stream,graph,blocks,threads,registers,kernel\n"
             '0,9000,7,0,1,1,32,"eager"\n'
             '100000,101000,7,5,1,1,32,"early<float>"\n'
             '200000,204000,7,5,1,1,32,"sum<float, 4>"\n203000,206000,8,5,1,1,32,"side<int>"\n'
             '207000,208000,7,5,1,1,32,"sum<double>"\n')

    def test_the_last_replay(self):
        found = timeline.summary(timeline.last_replay(self.TABLE))
        self.assertEqual(found.pop("longest"), {"sum": [2, 5.0], "side": [1, 3.0]})
        self.assertEqual(found, {"kernels": 3, "streams": 2, "us": 8.0, "idle_us": 1.0, "one_us": 6.0, "several_us": 1.0})
        with self.assertRaisesRegex(Failed, "no kernel of a graph"):
            timeline.last_replay(self.TABLE.split("100000")[0])

    def test_the_stage(self):
        """A fake of convoy-bench-step, and the real library where CUPTI is installed."""
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            program = directory / "convoy-bench-step"
            program.write_text(f"#!{sys.executable}\nimport os, pathlib\n"
                               f"pathlib.Path(os.environ['CONVOY_TIMELINE']).write_text({self.TABLE!r})\n")
            program.chmod(0o755)
            asked = Work(directory, 100, sys.executable, raw=directory / "raw")
            with mock.patch.object(timeline, "need_device"), \
                    mock.patch.object(timeline, "compile_library", lambda *_: ("timeline.so", "/nowhere")):
                entry = outcome_of(timeline.run, asked)
            self.assertEqual((entry["outcome"], list(entry["found"])), ("passed", list(timeline.STEPS)))
            self.assertEqual(len(list((directory / "raw").glob("*-nodes.csv.gz"))), len(timeline.STEPS))
            self.assertIn("| resnet18, batch 128, bf16 | 3 | 2 | 8 | 1 | 6 | 1 |", report.timeline(entry["found"]))
            try:
                library, _ = timeline.compile_library(work(), directory)
            except NotHere as reason:
                self.skipTest(f"needs CUPTI: {reason}")
            self.assertIn(b"InitializeInjection", library.read_bytes())


class Tests(unittest.TestCase):
    def test_races_are_searched_in_both_half_types(self):
        patterns = ":".join(pattern for _, pattern in device_tests.RACES)
        self.assertEqual({tool for tool, _ in device_tests.RACES}, {"racecheck"})
        source = ROOT / "tests" / "kernels" / "cuda" / "normalization" / "cuda_batchnorm_test.cpp"
        self.assertIn("CudaBatchNormTypes = ::testing::Types<float, double, float16, bfloat16>", source.read_text())
        for name in ("CudaBatchNorm/2.Forward", "CudaBatchNorm/3.Forward", "CudaLastBlock.LeavesTheTicketsZero"):
            self.assertTrue(device_tests.matches(patterns, name), name)
        self.assertFalse(device_tests.matches(patterns, "CudaBatchNorm/1.Forward"))

    def test_suites_of_a_listing(self):
        suites = device_tests.suites_in(LISTING)
        self.assertEqual(suites, {"CudaReduce/0": ["SumOfRows", "Norm"], "KernelRows": ["RunOnTheCpu", "RunOnAGpu"],
                                  "Sizes/Loader": ["Shards/0"]})
        self.assertEqual(device_tests.of_a_gpu(suites),
                         ["CudaReduce/0.SumOfRows", "CudaReduce/0.Norm", "KernelRows.RunOnAGpu"])

    def test_a_suite_that_crashes_takes_no_other_results_with_it(self):
        report = {"testsuites": [{"testsuite": [
            {"classname": "CudaReduce/0", "name": "Norm", "status": "RUN", "result": "COMPLETED"}]}]}
        with tempfile.TemporaryDirectory() as directory:
            program = pathlib.Path(directory) / "cuda_test"
            program.write_text(f"#!{sys.executable}\nimport pathlib, sys\n"
                               f"if '--gtest_list_tests' in sys.argv:\n    print({LISTING!r})\n    sys.exit()\n"
                               "if 'KernelRows.RunOnAGpu' in sys.argv[2]:\n    sys.exit('crash')\n"
                               "assert sys.argv[2] == '--gtest_filter=CudaReduce/0.SumOfRows:CudaReduce/0.Norm'\n"
                               f"pathlib.Path(sys.argv[1].split('json:')[1]).write_text({json.dumps(report)!r})\n")
            program.chmod(0o755)
            asked = work(programs=directory)
            with mock.patch.object(device_tests, "need_device"):
                device_tests.run(asked)
        self.assertEqual(asked.problems, ["cuda_test, KernelRows: ended with code 1: crash"])
        self.assertEqual(asked.found, {"cuda_test": {"tests": 1, "failed": {}, "skipped": []}})

    def test_programs_with_the_tests_of_a_pattern(self):
        programs = {"one": {"CudaReduce/0": ["Norm"]}, "two": {"CudaReduce/1": ["Norm"], "Other": ["CudaReduce"]}}
        self.assertEqual(device_tests.matching(programs, "CudaReduce/0.*:CudaMatmul/0.*"), ["one"])
        self.assertEqual(device_tests.matching(programs, "CudaReduce*"), ["one", "two"])
        self.assertEqual(device_tests.matching(programs, "CudaGraph*"), [])

    def test_outcome_of_a_report(self):
        tests = [{"classname": "A", "name": "good", "status": "RUN", "result": "COMPLETED"},
                 {"classname": "A", "name": "bad", "status": "RUN", "result": "COMPLETED",
                  "failures": [{"failure": "a.cpp:1\nis 3"}]},
                 {"classname": "A", "name": "no_gpu", "status": "RUN", "result": "SKIPPED"},
                 {"classname": "A", "name": "not_chosen", "status": "NOTRUN", "result": "SUPPRESSED"}]
        self.assertEqual(device_tests.outcome_of_report({"testsuites": [{"testsuite": tests}]}),
                         {"tests": 3, "failed": {"A.bad": ["a.cpp:1", "is 3"]}, "skipped": ["A.no_gpu"]})


class Ranks(unittest.TestCase):
    """Fakes of the programs that use NCCL."""

    def programs(self, **texts):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        for name, text in texts.items():
            program = pathlib.Path(directory.name) / name.replace("_train", "-train")
            program.write_text(f"#!{sys.executable}\nimport json, os, pathlib, sys\n"
                               "rank, world = int(os.environ['RANK']), int(os.environ['WORLD_SIZE'])\n" + text)
            program.chmod(0o755)
        return work(programs=directory.name)

    def test_all_ranks_run_at_once_with_their_environment(self):
        asked = self.programs(who="print(rank, world, os.environ['NCCL_HOSTID'], os.environ['MASTER_PORT'])")
        found = [done.stdout.split() for done in nccl.run_ranks(asked, 3, lambda _: [asked.programs / "who"])]
        self.assertEqual([words[:2] for words in found], [["0", "3"], ["1", "3"], ["2", "3"]])
        self.assertEqual(len({words[2] for words in found}), 3)
        self.assertEqual(len({words[3] for words in found}), 1)

    def test_a_case_fails_if_it_fails_on_one_rank(self):
        report = '''
report = {"testsuites": [{"testsuite": [
    {"classname": "C", "name": "sums", "status": "RUN", "result": "COMPLETED"},
    {"classname": "C", "name": "for_more", "status": "RUN", "result": "SKIPPED"}]}]}
if rank == 1:
    report["testsuites"][0]["testsuite"][0]["failures"] = [{"failure": "it is 3"}]
pathlib.Path(sys.argv[2].split("json:")[1]).write_text(json.dumps(report))
'''
        asked = self.programs(comm_nccl_ranks=report)
        nccl.conform(asked, 1, 0, 1)
        with self.assertRaisesRegex(Failed, "1 failures, the first: rank 1: C.sums: it is 3"):
            nccl.conform(asked, 2, 0, 2)
        with self.assertRaises(Failed):
            nccl.conform(asked, 2, 1, 2)
        self.assertEqual(asked.found["conformance"], {"1": {"cases": 1, "failed": {}},
                                                      "2": {"cases": 2, "failed": {"rank 1: C.sums": ["it is 3"]}}})

    def test_a_rank_that_exits_early_is_named(self):
        asked = self.programs(comm_nccl_ranks="sys.exit('no GPU' if rank == 1 else "
                                              "pathlib.Path(sys.argv[2].split('json:')[1]).write_text('{}') and 0)")
        with self.assertRaisesRegex(Failed, "rank 1 ended with code 1: no GPU"):
            nccl.conform(asked, 2, 0, 1)

    def test_losses_are_compared_with_those_of_one_rank(self):
        training_program = '''
out = pathlib.Path(sys.argv[sys.argv.index("--out") + 1])
if rank == 0:
    out.mkdir(parents=True)
    loss = 2.0 + (DIFFERENCE if world == 2 else 0)
    lines = [{"event": "start", "world_size": RANKS, "ranks": "one process"}, {"event": "step", "loss": loss}]
    (out / "log.jsonl").write_text("".join(json.dumps(line) + chr(10) for line in lines))
'''

        def programs(ranks, difference):
            return self.programs(
                convoy_train=training_program.replace("RANKS", ranks).replace("DIFFERENCE", difference))

        nccl.train(programs("world", "1e-6"), "lenet fp32")
        with self.assertRaisesRegex(Failed, "losses differ by 5.0e-04"):
            nccl.train(programs("world", "1e-3"), "lenet fp32")
        with self.assertRaisesRegex(Failed, "2 processes made a job of 1: one process"):
            nccl.train(programs("1", "0"), "lenet fp32")


class Counters(unittest.TestCase):
    """Output of ncu, made from counts."""

    COUNTED = [{"name": "map_kernel", "blocks": 264, "threads": 256, "requests_loaded": 3000, "requests_stored": 1000,
                "sectors_loaded": 24000, "sectors_stored": 8000, "shared_wavefronts": 0, "bytes_read": 1 << 20,
                "bytes_written": 0, "predicted_us": 3.5},
               {"name": "reduce_kernel", "blocks": 6, "threads": 64, "requests_loaded": 12, "requests_stored": 6,
                "sectors_loaded": 96, "sectors_stored": 6, "shared_wavefronts": 24, "bytes_read": 3072,
                "bytes_written": 24, "predicted_us": 2.0},
               {"name": "gemm", "blocks": 0, "threads": 0, "requests_loaded": 0, "requests_stored": 0,
                "sectors_loaded": 0, "sectors_stored": 0, "shared_wavefronts": 0, "bytes_read": 500,
                "bytes_written": 24, "predicted_us": 2.5}]

    def csv(self, **changes):
        """Returns what ncu prints for these launches. `changes` are of the first one."""
        rows = [["ID", "Kernel Name", "Block Size", "Grid Size", *sum(counters.MEASURED.values(), ())],
                [""] * 4 + ["inst"] * 9]
        for number, launch in enumerate(self.COUNTED):
            launch = {**launch, **(changes if number == 0 else {})}
            name = "ampere_sgemm_32x32" if launch["name"] == "gemm" else launch["name"]
            rows.append([number, name, f"({launch['threads'] or 128}, 1, 1)", f"({launch['blocks'] or 3}, 1, 1)",
                         f"{launch['requests_loaded']:,}", launch["requests_stored"], launch["sectors_loaded"],
                         launch["sectors_stored"], launch["shared_wavefronts"], 0, launch["bytes_read"],
                         launch["bytes_written"], 1e3 * launch["predicted_us"]])
        text = "".join(",".join(f'"{cell}"' for cell in row) + "\n" for row in rows)
        return "==PROF== Connected to process 7\n" + text

    def compare(self, **changes):
        return counters.compare(counters.counted_launches({"counts": {"launches": self.COUNTED}}),
                                counters.measured_launches(self.csv(**changes)))

    def test_equal_counts(self):
        rows, problems = self.compare()
        self.assertEqual(problems, [])
        self.assertEqual([(row["name"], row["launches"], row["sectors"]) for row in rows],
                         [("map_kernel, 264 x 256", [1, 1], 1.0), (counters.LIBRARIES, [1, 1], None),
                          ("reduce_kernel, 6 x 64", [1, 1], 1.0)])
        self.assertEqual(rows[0]["us"], [3.5, 3.5])
        table = "\n".join(report.counters({"rows": rows}))
        self.assertIn("| map_kernel, 264 x 256 | 1 / 1 | 1.0 / 1.0 | 3.5 | 3.5 | 1.000 | 1.000 |  |", table)
        self.assertIn("| reduce_kernel, 6 x 64 | 1 / 1 | 0.0 / 0.0 | 2.0 | 2.0 | 1.000 | 1.000 | 1.000 |", table)

    def test_other_counts_are_named(self):
        self.assertEqual(self.compare(sectors_loaded=48000)[1],
                         ["map_kernel, 264 x 256: counted 32000 sectors, measured 56000"])
        self.assertEqual(self.compare(shared_wavefronts=9)[1],
                         ["map_kernel, 264 x 256: counted 0 wavefronts, measured 9"])
        self.assertEqual(self.compare(sectors_loaded=24300)[1], [])  # within the tolerance
        with mock.patch.dict(counters.KNOWN, {"map_kernel": {"sectors": 0.1}}):
            self.assertEqual(self.compare(sectors_loaded=27000)[1], [])
            self.assertEqual(self.compare(sectors_loaded=28000, requests_loaded=3200)[1],
                             ["map_kernel, 264 x 256: counted 4000 requests, measured 4200",
                              "map_kernel, 264 x 256: counted 32000 sectors, measured 36000"])

    def test_other_launches_are_named(self):
        self.assertEqual(self.compare(blocks=132)[1], ["map_kernel, 132 x 256: counted 0 launches, measured 1",
                                                       "map_kernel, 264 x 256: counted 1 launches, measured 0"])

    def test_output_without_kernels(self):
        with self.assertRaisesRegex(Failed, "ncu: ==ERROR== no kernels"):
            counters.measured_launches("==PROF== Connected\n==ERROR== no kernels\n")

    def test_the_committed_counts(self):
        launches = counters.counted_launches(json.loads(counters.COUNTED.read_text()))
        self.assertEqual(len(counters.measured_launches(self.csv())), 3)
        rows, problems = counters.compare(launches, [launch for launch in launches if launch["threads"]])
        self.assertEqual(problems, [])
        self.assertGreater(len(rows), 15)
        self.assertEqual([row["name"] for row in rows if row["name"].startswith(("conv2d", "gemm", "copy"))], [])

    def test_the_stage(self):
        known = next(launch for launch in json.loads(counters.COUNTED.read_text())["counts"]["launches"]
                     if launch["threads"])["name"]
        for printed, code, outcome, what in (
                (self.csv(name=known, blocks=999), 0, "failed", f"{known}, 999 x 256: counted 0 launches, measured 1"),
                ("==ERROR== ERR_NVGPUCTRPERM", 1, "left out", "may not read the counters"),
                ("==ERROR== bad", 9, "failed", "ncu ended with code 9: ==ERROR== bad")):
            with self.subTest(what), tempfile.TemporaryDirectory() as directory:
                program = pathlib.Path(directory) / "ncu"
                program.write_text(f"#!{sys.executable}\nimport sys\nprint({printed!r})\nsys.exit({code})\n")
                program.chmod(0o755)
                with mock.patch.object(counters, "need_device"), \
                        mock.patch.object(counters, "find_profiler", lambda: str(program)):
                    entry = outcome_of(counters.run, work())
                self.assertEqual(entry["outcome"], outcome)
                self.assertIn(what, " ".join(entry.get("problems", []) + entry.get("left_out", [])))


class Figures(unittest.TestCase):
    def test_versions(self):
        self.assertEqual(environment.version_text("CUDA runtime", 13020), "13.2")
        self.assertEqual(environment.version_text("cuDNN", 91900), "9.19.0")
        self.assertEqual(environment.version_text("cuBLASLt", 130002), "13.0.2")
        self.assertEqual(environment.version_text("NCCL", 22907), "2.29.7")

    def test_missing_libraries(self):
        listing = "\tlibm.so.6 => /lib/libm.so.6 (0x1)\n\tlibcudnn.so.9 => not found\n\tlinux-vdso.so.1 (0x2)\n"
        self.assertEqual(build.missing_libraries(listing), ["libcudnn.so.9"])

    def test_worst_difference_of_losses(self):
        self.assertAlmostEqual(training.worst_difference([2.0, 1.1], [2.0, 1.0]), 0.1)
        self.assertEqual(training.worst_difference([2.0], [2.0, 1.0]), math.inf)
        self.assertEqual(training.worst_difference([math.nan], [2.0]), math.inf)

    def test_a_network_that_learns(self):
        self.assertTrue(smoke.learns([2.3, 2.2, 2.1, 2.3, 1.0, 2.0, 1.9, 1.8]))
        self.assertFalse(smoke.learns([2.3, 2.2, 2.1, 2.3, 2.3, 2.3, 2.3, 2.3]))
        self.assertFalse(smoke.learns([2.3, 2.2, 2.1, 2.3, 1.0, 2.0, 1.9, math.nan]))
        self.assertFalse(smoke.learns([2.3, 1.0]))

    def test_each_flag_of_a_short_training_is_given_once(self):
        for quick in (False, True):
            asked = Work("/nowhere", 100, sys.executable, quick)

            def trainer(device, *flags):
                names = [flag for flag in flags if str(flag).startswith("--")]
                self.assertEqual(len(names), len(set(names)))
                self.assertEqual(flags[flags.index("--model") + 1], "lenet" if quick else "resnet18")
                return training.Run([2.0, 1.9, 1.8, 1.0], 10.0, "hash", b"", [])

            for name in smoke.TRAININGS:
                smoke.train(asked, trainer, name)
            self.assertEqual(list(asked.found), list(smoke.TRAININGS))

    def test_goals_of_kernels(self):
        row = {"run_name": "batch_norm_forward/manual_time", "aggregate_name": "median", "GB/s": 4.0, "of_copy": 0.9}
        mean = {**row, "aggregate_name": "mean", "GB/s": 5.0}
        self.assertEqual(bandwidth.rows_in({"benchmarks": [row, mean]}),
                         {"batch_norm_forward": {"GB/s": 4.0, "of_copy": 0.9, "goal": 0.88}})
        self.assertEqual([bandwidth.goal_of(name) for name in ("softmax_cross_entropy_forward", "add")], [0.92, 0.95])

    def test_figures_of_ops(self):
        row = {"run_name": "resnet18/linear_512x10_bias/forward/manual_time", "aggregate_name": "median", "GB/s": 90.0,
               "GFLOP/s": 300.0, "of_ceiling": 0.25, "per_step": 1}
        found = {"ops": bandwidth.ops_in({"benchmarks": [row, {**row, "aggregate_name": "mean"}]})}
        self.assertEqual(found["ops"], {"resnet18/linear_512x10_bias/forward":
                                        {"GB/s": 90.0, "GFLOP/s": 300.0, "of_ceiling": 0.25}})
        self.assertIn("| resnet18/linear_512x10_bias/forward | 90 | 300 | 0.25 |", report.bandwidth(found))

    def test_a_side_that_failed_is_not_left_out(self):
        one = work()
        rates.note_missing_sides(one, {"slow": "no warm after 12 s", "broken": "RuntimeError: max-autotune"})
        self.assertEqual((one.left_out, one.problems), (["slow: no warm after 12 s"], ["broken: RuntimeError: max-autotune"]))

    def test_a_library_that_does_not_work_is_not_missing(self):
        def answers(code):
            one = work()
            one.run = lambda *_: types.SimpleNamespace(returncode=code, stdout="2.11\n", stderr="ImportError: libc10.so")
            return one

        self.assertEqual(losses.need_pytorch(answers(0)), "2.11")
        with self.assertRaisesRegex(NotHere, "has no torch"):
            losses.need_pytorch(answers(77))
        with self.assertRaisesRegex(Failed, "ImportError: libc10.so"):
            losses.need_pytorch(answers(1))

    def test_goals_of_rates(self):
        def side(rate, peak):
            return {"images_per_second": rate, "peak_bytes": peak}

        figures = {"sides": {"convoy": side(90e3, 600), rates.EAGER: side(40e3, 1000)}, "ratios": {rates.EAGER: 2.25}}
        found = rates.goal_rows({"eager": 2.0, "compiled": 1.15, "images_per_second": 100e3, "memory": 0.7}, figures)
        self.assertEqual([row[1:] for row in found],
                         [[2.25, 2.0, True], [None, 1.15, None], [90e3, 100e3, False], [0.6, 0.7, True]])

    def test_stored_figures_of_pytorch(self):
        stored = json.loads((ROOT / "bench" / "results" / "h200" / "pytorch.json").read_text())
        cases = {chosen["name"]: chosen for chosen in rates.CASES}
        asked = []

        def run(name, **options):
            one = Work("/nowhere", 100, sys.executable, pytorch=stored, **options)
            one.compare = lambda _, flags: asked.append(flags) or {
                "sides": {"convoy": {"images_per_second": 68000.0, "peak_bytes": 5e8}}, "ratios": {}, "left_out": {}}
            with mock.patch.object(rates, "need_device"), mock.patch.object(rates, "need_pytorch"):
                rates.run_case(cases[name], one)
            return one.found

        found = run("resnet18_128")
        self.assertEqual(asked[0][asked[0].index("--sides") + 1], "")  # PyTorch does not run
        self.assertAlmostEqual(found["ratios"][rates.REDUCED], 68000 / 53467)
        self.assertEqual(found["stored"], {"date": "2026-11-28", "torch": "2.11.0+cu130"})
        self.assertEqual([row[3] for row in found["goals"]], [True, True, False])
        self.assertIn("PyTorch 2.11.0+cu130 as measured on 2026-11-28.", report.rate(
            {**found, "model": "resnet18", "image_size": 32, "batch_size": 128, "precision": "bf16",
             "sides": {side: {"rounds": 0, "lowest": None, "highest": None, **entry}
                       for side, entry in found["sides"].items()}}))
        for name, options in (("resnet18_128", {"questioned": ["rate_resnet18_128"]}), ("lenet_128", {})):
            self.assertNotIn("stored", run(name, **options))
            self.assertIn(rates.COMPILED, asked[-1][asked[-1].index("--sides") + 1])

    def test_goals_of_the_speed_recipe(self):
        def side(train, views, processes):
            return {"record_seconds": {"mean": train + views}, "process_seconds": {"each": processes}}

        convoy = side(0.5, 0.1, [5.0, 2.5])
        found = speedrun.goal_rows({"convoy": convoy, "pytorch": side(0.7, 0.1, [9.0])})
        self.assertEqual([row[2:] for row in found], [[0.75, True], [0.70, False], [3.0, True]])
        self.assertAlmostEqual(found[1][1], 0.75)
        self.assertEqual(speedrun.goal_rows({"convoy": convoy})[1][1:], [None, 0.70, None])

    def test_windows_of_a_log(self):
        log = "".join(json.dumps({"event": event, "step_ms": ms, "memory_bytes": 7}) + "\n"
                      for event, ms in (("start", 0), ("step", 9), ("step", 2), ("eval", 0), ("step", 3)))
        self.assertEqual(step.read_windows(log, 1), ([2, 3], 7))
        with self.assertRaisesRegex(harness.Unavailable, "found 3 steps in the log, expected more than 3"):
            step.read_windows(log, 3)

    def test_summary_of_rounds(self):
        entry = step.summary(100, [2.0, 4.0, 1.0], {"peak_bytes": 7})
        self.assertEqual((entry["images_per_second"], entry["lowest"], entry["highest"], entry["rounds"],
                          entry["peak_bytes"]), (50e3, 25e3, 100e3, 3, 7))

    def test_ratios_by_round(self):
        self.assertEqual(harness.ratios_by_round([4.0, 4.0, 5.0], [2.0, 4.0, 1.0]),
                         {"median": 2.0, "lowest": 1.0, "highest": 5.0})


class Peers(unittest.TestCase):
    """Fakes of pytorch_step.py, which speak its protocol."""

    def peer(self, program):
        with tempfile.NamedTemporaryFile("w", suffix=".py") as file:
            file.write(program)
            file.flush()
            with mock.patch.object(step, "PEER", file.name):
                peer = step.StepPeer(sys.executable, [])
            self.addCleanup(peer.close)
            peer.wait_until_first_step(20)
            return peer

    def test_windows(self):
        peer = self.peer("""if True:
            import json, sys
            print('{"event": "first step", "start_resident_bytes": 2}\\n{"event": "warm"}', flush=True)
            for line in sys.stdin:
                window = {"event": "window", "step_ms": int(line), "peak_bytes": 5, "peak_resident_bytes": 6}
                print(json.dumps(window), flush=True)
        """)
        peer.answer("warm", 20)
        self.assertEqual(peer.windows(3, 2, 20),
                         (3, {"peak_bytes": 5, "peak_resident_bytes": 6, "start_resident_bytes": 2}))

    def test_a_peer_that_exits_reports_the_reason(self):
        peer = self.peer("""if True:
            import sys
            print('{"event": "first step"}', flush=True)
            sys.exit("no GPU")
        """)
        with self.assertRaisesRegex(harness.Unavailable, "no GPU"):
            peer.answer("warm", 20)

    def test_a_peer_that_takes_too_long_is_abandoned(self):
        peer = self.peer("""if True:
            import time
            print('{"event": "first step"}', flush=True)
            time.sleep(60)
        """)
        with self.assertRaisesRegex(harness.Unavailable, "no warm after"):
            peer.answer("warm", 0.1)


class Images(unittest.TestCase):
    def test_files_contain_the_returned_pixels(self):
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            kept = generated_images.write_dataset(directory, 3, 12, test=2)
            self.assertEqual([label for label, _ in kept], [*range(10), 0, 1])
            file = (directory / "train" / "class1" / "11.bmp").read_bytes()
            self.assertEqual(len(list((directory / "test").glob("*/*.bmp"))), 2)
        rows = [file[54 + 12 * y:][:9] for y in (2, 1, 0)]  # rows of 9 bytes and 3 of padding, from the bottom
        colours = b"".join(bytes([row[i + 2], row[i + 1], row[i]]) for row in rows for i in (0, 3, 6))
        self.assertEqual(colours, kept[11][1])


class Table(unittest.TestCase):
    def test_a_row_is_one_line(self):
        self.assertEqual(report.table(("a",), [("one\ntwo | three",)])[-1], "| one two \\| three |")

    def test_every_section(self):
        side = {"images_per_second": 1e5, "lowest": 9e4, "highest": 1.1e5, "rounds": 5, "peak_bytes": 2e9}
        found = {
            "environment": {"GPU": "H"},
            "smoke": {"resnet18 bf16": {"steps": 9, "first_loss": 2.5, "last_loss": 0.51, "images_per_second": 5e4}},
            "tests": {"a_test": {"tests": 3, "failed": {}, "skipped": ["x"]}},
            "sanitizer": {"memcheck a": {"tests": 2, "summary": "ERROR SUMMARY: 0 errors"}},
            "training": {"lenet": {"steps": 5, "worst_relative_difference": 1e-7, "tolerance": 1e-5},
                         "twice": {"steps": 5, "parameters_hash": "abc", "warnings": []}},
            "losses": {"lenet fp32": {"steps": 20, "loss_error": 1e-7, "loss_error_pytorch": 2e-7,
                                      "state_error": 3e-7, "state_error_pytorch": 4e-7, "agree": True}},
            "bandwidth": {"copy_GB/s": "4300.0", "kernels": {"add": {"GB/s": 4200, "of_copy": 0.977, "goal": 0.95}}},
            "nccl": {"conformance": {"2": {"cases": 27, "failed": {"rank 1: a": ["b"]}}},
                     "training": {"lenet fp32": {"steps": 20, "worst_relative_difference": 1e-7, "tolerance": 1e-5}}},
            "cold_start": {"seconds": {"convoy": 1.5, "pytorch": 8}, "goals": [["of PyTorch's", 0.19, 0.25, True]]},
            "rate_resnet18_128": {"model": "resnet18", "image_size": 32, "batch_size": 128, "precision": "bf16",
                                  "sides": {"convoy": side, rates.EAGER: side}, "ratios": {rates.EAGER: 1.0},
                                  "goals": [["images/s", None, 1e5, None]]},
        }
        stages = {name: {"outcome": "passed", "seconds": 1, "found": entry} for name, entry in found.items()}
        text = report.markdown({"gpu": "H", "date": "today", "version": "1", "stages": stages})
        for line in ("| GPU | H |", "| resnet18 bf16 | 9 | 2.5 | 0.51 | 50,000 |", "| a_test | 3 | 0 | 1 |",
                     "| memcheck a | 2 | ERROR SUMMARY: 0 errors |",
                     "| lenet | 5 | 1.0e-07 | 1e-05 |", "| twice | 5 | abc |",
                     "| lenet fp32 | 20 | 1.0e-07 | 2.0e-07 | 3.0e-07 | 4.0e-07 | yes |",
                     "| 2 | 27 | 1 |", "| lenet fp32 | 20 | 1.0e-07 | 1e-05 |",
                     "| add | 4200 | 0.98 | 0.95 |", "| convoy | 1.50 |",
                     "| cold_start | of PyTorch's | 0.19 | 0.25 | yes |",
                     "| rate_resnet18_128 | images/s | not measured | 100,000 |  |",
                     "| convoy | 100,000 | 90,000 | 110,000 | 5 | 2,000 | 1.00 |"):
            self.assertIn(line + "\n", text)


if __name__ == "__main__":
    unittest.main()
