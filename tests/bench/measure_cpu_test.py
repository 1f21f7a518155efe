#!/usr/bin/env python3
"""Tests of bench/python/measure_cpu.py and the comparisons that it calls, with fake programs. Also tests that the
tables in bench/README.md match the JSON files."""

import contextlib
import io
import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench" / "python"
sys.path.insert(0, str(BENCH))
import compare_accuracy  # noqa: E402
import compare_loader  # noqa: E402
import compare_step  # noqa: E402
import comparison  # noqa: E402
import cpu_goals  # noqa: E402
import cpu_tables  # noqa: E402
import measure_cpu  # noqa: E402

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
ALL_REDUCE = """
mpi = {"ratio": RATIO, "lowest": 2.0, "highest": 3.0, "time_us": 5000}
report(rows=[{"in_place": {"p50_us": 2000, "p99_us": 3000, "mpi": mpi}}])
"""
STEP = """
ranks = int(os.environ.get("RANKS", 1))
rate = 90.0 if ranks > 1 else 100.0
report(world_size=WORLD, ranks="so many", images_per_second={"median": rate})
"""


def run(script, *flags):
    return subprocess.run([sys.executable, "-B", BENCH / script, *map(str, flags)], capture_output=True, text=True)


class Programs(unittest.TestCase):
    """A build directory with fake programs."""

    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.out = self.directory / "out"
        self.program("convoy-train", "print('convoy-train 9.9')")
        self.mpirun = self.program("mpirun", MPIRUN)

    def program(self, name, text):
        program = self.directory / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(HEAD + text)
        program.chmod(0o755)
        return program

    def measure(self, *flags):
        done = run("measure_cpu.py", "--build", self.directory, "--out", self.out, "--mpirun", self.mpirun, "--python",
                   "/nowhere/python", "--data", self.directory / "data", *flags)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def entry(self, stage):
        return json.loads((self.out / f"{stage}.json").read_text())


class Stages(Programs):
    def test_a_stage_writes_command_results_and_row(self):
        self.program("convoy-bench-allreduce", ALL_REDUCE.replace("RATIO", "8.5"))
        done = self.measure("--only", "allreduce")
        self.assertEqual(done.returncode, 0, done.stderr)
        entry = self.entry("allreduce")
        self.assertEqual((entry["outcome"], entry["version"], entry["quick"]), ("measured", "convoy-train 9.9", False))
        self.assertEqual(entry["figures"]["rows"][0]["in_place"]["mpi"]["ratio"], 8.5)
        self.assertIn("-n 2 convoy-bench-allreduce -b 44695848 -e 44695848", entry["command"])
        self.assertIn("| 8.50 (2.00 to 3.00); 2.0 ms (p99 3.0), MPI 5.0 | ≥ 6 | met |",
                      (self.out / "goals.md").read_text())

    def test_a_run_replaces_only_the_rows_of_its_stages(self):
        self.program("convoy-bench-allreduce", ALL_REDUCE.replace("RATIO", "8.5"))
        self.program("convoy-bench-step", STEP.replace("WORLD", "ranks"))
        self.assertEqual(self.measure("--only", "allreduce,ranks").returncode, 0)
        self.program("convoy-bench-allreduce", ALL_REDUCE.replace("RATIO", "2.5"))
        self.program("convoy-bench-step", "sys.exit('not asked for')")
        self.assertEqual(self.measure("--only", "allreduce").returncode, 0)
        table = (self.out / "goals.md").read_text()
        self.assertIn("| 2.50 (2.00 to 3.00); 2.0 ms (p99 3.0), MPI 5.0 | ≥ 6 | **missed** |", table)
        self.assertIn("| 0.90 (0.90 to 0.90); 90.0 images/s vs 100.0 | ≥ 1 | **missed** |", table)

    def test_a_failure_is_reported_and_keeps_earlier_results(self):
        self.program("convoy-bench-allreduce", "sys.exit('it broke')")
        done = self.measure("--only", "allreduce")
        self.assertEqual(done.returncode, 1)
        self.assertIn("allreduce: failed: mpirun: code 1, it broke", done.stdout)
        self.assertIn("| failed: mpirun: code 1, it broke |", (self.out / "goals.md").read_text())
        self.program("convoy-bench-allreduce", ALL_REDUCE.replace("RATIO", "8.5"))
        self.assertEqual(self.measure("--only", "allreduce").returncode, 0)
        self.program("convoy-bench-allreduce", "sys.exit('it broke')")
        self.assertEqual(self.measure("--only", "allreduce").returncode, 1)
        self.assertEqual(self.entry("allreduce")["outcome"], "measured")

    def test_unmet_requirements_are_left_out_without_failure(self):
        done = self.measure("--only", "step_resnet18,loader,accuracy,allreduce,overlap_projected", "--mpirun",
                            "/nowhere/m")
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("step_resnet18: left out: /nowhere/python: No such file or directory",
                     "loader: left out: /nowhere/python: No such file or directory",
                     f"accuracy: left out: no directory {self.directory}/data/cifar10/train; set --data",
                     "allreduce: left out: no /nowhere/m",
                     "overlap_projected: left out: no record of the stage overlap"):
            self.assertIn(line, done.stdout)
        self.assertIn("| left out: no /nowhere/m | ≥ 6 |", (self.out / "goals.md").read_text())

    def test_a_python_without_torch_is_named(self):
        machine = measure_cpu.Machine(mock.Mock(python=sys.executable))
        self.assertIn("no no_such_module: ModuleNotFoundError", machine.has_python_with("no_such_module"))
        self.assertEqual(machine.has_python_with("json"), "")

    def test_ops_are_written_to_kernels_md(self):
        self.program("convoy-bench-kernels", """
flag = next(word for word in sys.argv if word.startswith("--benchmark_out="))
context = {"libraries": "", "precision": "fp32", "batch_size": "4", "copy_GB/s": "1", "product_GFLOP/s": "1"}
row = {"name": "net/conv/forward/manual_time", "real_time": 1.0, "time_unit": "ms", "of_ceiling": 0.5, "per_step": 2.0}
pathlib.Path(flag.partition("=")[2]).write_text(json.dumps({"context": context, "benchmarks": [row]}))
""")
        done = self.measure("--only", "kernels")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("| conv | 2 | 1.000 | 0.50 |  |  |", (self.out / "kernels.md").read_text())

    def test_results_of_two_machines_are_not_mixed(self):
        self.out.mkdir()
        entry = {"stage": "overlap", "outcome": "failed", "why": "", "processor": "Z80", "cores": 1, "quick": False}
        (self.out / "overlap.json").write_text(json.dumps(entry))
        done = self.measure("--only", "allreduce")
        self.assertEqual(done.returncode, 2)
        self.assertIn("found results of Z80, 1 cores, expected those of", done.stderr)

    def test_a_rehearsal_replaces_flags(self):
        stage = next(stage for stage in cpu_goals.STAGES if stage.name == "step_resnet18")
        words = measure_cpu.words_of(stage, quick=True)
        self.assertEqual(words.count("--model"), 1)
        self.assertNotIn("resnet18", words)
        self.assertEqual(measure_cpu.words_of(stage, quick=False), stage.words)


class Arguments(Programs):
    def test_every_script_has_help(self):
        for script in ("measure_cpu.py", "compare_step.py", "compare_loader.py", "compare_ranks.py",
                       "compare_accuracy.py", "compare_speedrun.py"):
            done = run(script, "--help")
            self.assertEqual((done.returncode, done.stderr), (0, ""), script)
            self.assertIn(script, done.stdout)

    def test_invalid_flags_are_rejected(self):
        for flags, what in (
            (("measure_cpu.py", "--only", "allreduse"), "--only: found 'allreduse', expected kernels, step_resnet18"),
            (("measure_cpu.py", "--quick", "--build", self.directory), "--quick: requires --out"),
            (("measure_cpu.py", "--build", "/nowhere"), "--build: found no /nowhere/bin/convoy-train"),
            (("measure_cpu.py", "--build", self.directory, "--out", self.out, "--machine", "m"), "--machine: found --out"),
            (("compare_ranks.py", "--ranks", "1"), "--ranks: found 1, expected 2 or more"),
            (("compare_accuracy.py", "--seeds", "1"), "--seeds: found 1, expected 2 or more"),
            (("compare_loader.py", "--data", ".", "--sides", "pilow"), "--sides: found 'pilow', expected pillow"),
            (("compare_loader.py",), "--data"),
            (("compare_speedrun.py", "--data", "", "--python", "python3"), "--python: requires --data"),
        ):
            done = run(*flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(what, done.stderr)

    def test_a_missing_program_is_reported_in_one_line(self):
        for script, flag, more in (("compare_ranks.py", "--mpirun", ()), ("compare_accuracy.py", "--convoy", ()),
                                   ("compare_loader.py", "--convoy", ("--data", ".")),
                                   ("compare_speedrun.py", "--convoy", ()), ("compare_step.py", "--convoy", ())):
            done = run(script, flag, "/nowhere/program", *more)
            self.assertEqual((done.returncode, done.stderr),
                             (1, f"{script[:-3]}: program: No such file or directory\n"), script)


class Reasons(unittest.TestCase):
    FRAME = 74 * "-"

    def test_the_error_of_the_program_has_priority(self):
        self.assertEqual(
            comparison.reason(f"convoy-bench-step: error: --model: found 'nope'\n{self.FRAME}\nPrimary job terminated\n"
                              f"{self.FRAME}\n"), "convoy-bench-step: error: --model: found 'nope'")

    def test_a_framed_message_of_mpirun_becomes_one_line(self):
        self.assertEqual(
            comparison.reason(f"{self.FRAME}\nmpirun could not\nexecute an executable:\n\nExecutable: /nowhere/x\n"
                              f"{self.FRAME}\n\n{self.FRAME}\nmore\n{self.FRAME}\n"),
            "mpirun could not execute an executable: Executable: /nowhere/x")

    def test_the_last_line_is_the_fallback(self):
        self.assertEqual(comparison.reason("a warning\nImportError: no torch\n"), "ImportError: no torch")
        self.assertEqual(comparison.reason(f"one\n{self.FRAME}\n"), self.FRAME)
        self.assertEqual(comparison.reason(""), "no output")

    def test_a_program_that_mpirun_does_not_find_is_reported(self):
        with tempfile.TemporaryDirectory() as directory:
            starter = pathlib.Path(directory) / "starter"
            starter.write_text(HEAD + f"""
sys.stderr.write({self.FRAME!r} + "\\nno " + sys.argv[3] + "\\n" + {self.FRAME!r} + "\\n")
sys.exit(132)
""")
            starter.chmod(0o755)
            done = run("compare_ranks.py", "--ranks", 2, "--mpirun", starter, "--bench", "/nowhere/program")
        self.assertEqual((done.returncode, done.stderr), (1, "compare_ranks: starter: code 132, no /nowhere/program\n"))


class Comparisons(Programs):
    def test_ranks_are_compared_with_threads(self):
        bench = self.program("convoy-bench-step", STEP.replace("WORLD", "ranks"))
        file = self.directory / "figures.json"
        done = run("compare_ranks.py", "--bench", bench, "--mpirun", self.mpirun, "--ranks", 3, "--rounds", 2, "--json",
                   file)
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(file.read_text())
        self.assertEqual((figures["ratio"], figures["ranks"], figures["rounds"]),
                         ({"median": 0.9, "lowest": 0.9, "highest": 0.9}, 3, 2))

    def test_processes_without_a_common_world_size_are_rejected(self):
        bench = self.program("convoy-bench-step", STEP.replace("WORLD", "1"))
        done = run("compare_ranks.py", "--bench", bench, "--mpirun", self.mpirun, "--ranks", 2)
        self.assertEqual((done.returncode, done.stderr),
                         (1, "compare_ranks: found a world size of 1 with 2 processes: so many\n"))

    def test_accuracies_are_compared_seed_by_seed(self):
        train = self.program("convoy-train", """
seed, gained = int(value("--seed")), 0.002 if os.environ["CONVOY_WINOGRAD"] == "on" else 0
accuracy = 0.5 + 0.01 * seed + gained * seed
out = pathlib.Path(value("--out"))
lines = [{"event": "step"}, {"event": "result", "test_accuracy": accuracy, "test_loss": 1.0}]
(out / "log.jsonl").write_text("".join(json.dumps(line) + chr(10) for line in lines))
""")
        file = self.directory / "figures.json"
        done = run("compare_accuracy.py", "--convoy", train, "--seeds", 3, "--json", file)
        self.assertEqual(done.returncode, 0, done.stderr)
        figures = json.loads(file.read_text())
        self.assertAlmostEqual(figures["accuracy"]["off"]["mean"], 0.52)
        self.assertAlmostEqual(figures["accuracy_difference"]["mean"], 0.004)
        # The differences are 0.002, 0.004 and 0.006: their standard deviation is 0.002.
        self.assertAlmostEqual(figures["accuracy_difference"]["standard_error"], 0.002 / math.sqrt(3))
        self.assertEqual(compare_accuracy.differences([0.5, 0.6], [0.5, 0.6]), {"mean": 0, "standard_error": 0})

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
        command = ["compare_loader.py", "--convoy", bench, "--data", self.directory, "--rounds", "2", "--json", file]
        with mock.patch.object(compare_loader, "PEER", peer), mock.patch.object(sys, "argv", list(map(str, command))), \
                contextlib.redirect_stdout(io.StringIO()) as out:
            compare_loader.main()
        figures = json.loads(file.read_text())
        self.assertEqual(figures["ratios_by_round"]["pillow"]["images_per_core_second"]["median"], 4)
        self.assertEqual(figures["ratios_by_round"]["pillow"]["images_per_second"]["median"], 4)
        self.assertEqual(figures["ratios_of_later_epochs"]["pillow"]["images_per_core_second"]["median"], 40)
        self.assertEqual(figures["left_out"], {"torchvision": "no decoder"})
        self.assertIn("left out: no decoder", out.getvalue())
        text, ratio = cpu_goals.loader("ratios_by_round")(figures)
        self.assertEqual((ratio, text.split(";")[0]), (4, "4.00 (4.00 to 4.00)"))

    def test_run_to_end_returns_memory_or_raises_a_reason(self):
        big = self.program("big", "kept = bytearray(100_000_000)\nprint(len(kept))")
        done = comparison.run_to_end([big], 60)
        self.assertEqual(done.out, "100000000\n")
        self.assertGreater(done.peak_resident_bytes, 100_000_000)
        self.assertLess(done.peak_resident_bytes, 1_000_000_000)
        with self.assertRaisesRegex(comparison.Unavailable, "^sleep: not done after 0 s$"):
            comparison.run_to_end(["sleep", "60"], 0.2)
        with self.assertRaisesRegex(comparison.Unavailable, "^bad: code 3, the last line$"):
            bad = self.program("bad", "print('first\\nthe last line', file=sys.stderr)\nsys.exit(3)")
            comparison.run_to_end([bad], 60)

    def test_rounds_stop_when_time_runs_out(self):
        self.assertEqual(comparison.collect_rounds(3, lambda: 100, lambda i: i), [0, 1, 2])
        self.assertEqual(comparison.collect_rounds(3, lambda: 0, lambda i: i), [0])

    def test_a_round_cut_short_by_the_deadline_is_dropped(self):
        left = [100]

        def run_round(i):
            if i == until:
                left[0] = -1 if is_late else 100
                raise comparison.Unavailable("no window")
            return i

        until, is_late = 2, True
        self.assertEqual(comparison.collect_rounds(5, lambda: left[0], run_round), [0, 1])
        for until, is_late in ((0, True), (2, False)):  # the first round, or another reason
            left[0] = 100
            with self.assertRaisesRegex(comparison.Unavailable, "no window"):
                comparison.collect_rounds(5, lambda: left[0], run_round)

    def test_memory_ratios(self):
        ours = {"peak_resident_bytes": 50, "start_resident_bytes": 10}
        theirs = {"peak_resident_bytes": 200, "start_resident_bytes": 120}
        self.assertEqual(compare_step.memory_ratios(ours, theirs), {"whole": 0.25, "growth": 0.5})
        self.assertEqual(compare_step.memory_ratios(ours, {"peak_resident_bytes": 0}), {})


class Goals(unittest.TestCase):
    def test_bounds(self):
        minimum = cpu_goals.Goal("", 2, lambda number: ("", number))
        maximum = cpu_goals.Goal("", 2, lambda number: ("", number), at_most=True, unit=" %")
        self.assertEqual([minimum.row(number)[1] for number in (1.9, 2, None)], [False, True, None])
        self.assertEqual([maximum.row(number)[1] for number in (1.9, 2, 2.1)], [True, True, False])
        self.assertEqual((minimum.target(), maximum.target()), ("≥ 2", "≤ 2 %"))

    def test_the_faster_pytorch_side_counts(self):
        def side(rate, peak, start):
            return {"images_per_second": rate, "peak_resident_bytes": peak, "start_resident_bytes": start}

        def ratio(median):
            return {"median": median, "lowest": median, "highest": median}

        figures = {"torch": "1.0", "left_out": {}, "sides": {"convoy": side(100, 3e6, 1e6), "slow": side(25, 9e6, 1e6),
                                                             "fast": side(50, 6e6, 2e6)},
                   "ratios_by_round": {"slow": ratio(4.0), "fast": ratio(2.0)},
                   "memory_ratios": {"slow": {"whole": 0.3, "growth": 0.2}, "fast": {"whole": 0.5, "growth": 0.5}}}
        self.assertEqual(cpu_goals.times_pytorch(figures),
                         ("2.00 (2.00 to 2.00); 100.0 images/s vs 50.0, PyTorch 1.0 fast", 2.0))
        self.assertEqual(cpu_goals.memory("growth")(figures), ("0.50; 2 MB vs 4", 0.5))
        self.assertEqual(cpu_goals.memory("whole")(figures), ("0.50; 3 MB vs 6", 0.5))

    def test_without_a_pytorch_side_there_is_no_result(self):
        figures = {"sides": {"convoy": {"images_per_second": 1}}, "left_out": {"eager": "too old"}}
        self.assertEqual(cpu_goals.times_pytorch(figures), ("not compared: eager: too old", None))
        self.assertEqual(cpu_goals.memory("whole")(figures), ("not compared", None))

    def test_differences_in_standard_errors(self):
        def figures(mean, error):
            side = {"mean": 0.5}
            return {"accuracy_difference": {"mean": mean, "standard_error": error},
                    "accuracy": {"on": side, "off": side}, "seeds": 5}

        self.assertAlmostEqual(cpu_goals.accuracy(figures(-0.01, 0.002))[1], 5)
        self.assertEqual(cpu_goals.accuracy(figures(0, 0))[1], 0)
        self.assertEqual(cpu_goals.accuracy(figures(0.01, 0))[1], math.inf)

    def test_machine_names(self):
        for processor, name in (("Intel(R) Xeon(R) Processor @ 2.50GHz", "xeon-2-cores"),
                                ("AMD EPYC 9B14 96-Core Processor", "epyc-2-cores"),
                                ("Intel(R) Core(TM) i7-1185G7", "core-2-cores"), ("", "cpu-2-cores")):
            self.assertEqual(measure_cpu.machine_name(processor, 2), name)


class Tables(unittest.TestCase):
    def test_the_readme_tables_match_the_json_files(self):
        text = cpu_tables.README.read_text()
        self.assertEqual(cpu_tables.with_tables(text, cpu_tables.RESULTS), text,
                         "run python3 bench/python/measure_cpu.py --tables")

    def test_the_tables_of_each_machine_match_its_json_files(self):
        found = 0
        for directory in cpu_tables.RESULTS.iterdir():
            entries = cpu_tables.read_entries(directory)
            if entries:
                found += 1
                for name, text in cpu_tables.files_of(directory).items():
                    self.assertEqual((directory / name).read_text(), text, "run python3 bench/python/measure_cpu.py --tables")
        self.assertGreater(found, 0)

    def test_a_row_has_both_directions_of_an_op(self):
        def row(name, **counters):
            return {"name": f"{name}/manual_time", "real_time": 1500.0, "time_unit": "us", **counters}

        context = {"libraries": "oneDNN 0", "precision": "fp32", "batch_size": "4", "copy_GB/s": "12.34",
                   "product_GFLOP/s": "100"}
        benchmarks = [row("copy", **{"GB/s": 12.3, "of_copy": 1.0}),
                      row("net/conv/forward", of_ceiling=0.5, per_step=3.0),
                      row("net/conv/backward", of_ceiling=0.25, per_step=3.0),
                      row("ops/add/forward", of_ceiling=0.75, per_step=1.0)]
        text = cpu_tables.kernels_text({"figures": {"context": context, "benchmarks": benchmarks}, "processor": "P",
                                        "cores": 2, "command": "c", "date": "d"})
        self.assertIn("copy 12.3 GB/s, GEMM 100.0 GFLOP/s", text)
        self.assertIn("| conv | 3 | 1.500 | 0.50 | 1.500 | 0.25 |", text)
        self.assertIn("| add | 1 | 1.500 | 0.75 |  |  |", text)
        self.assertIn("| copy | 12.3 | 1.00 |", text)

    def test_a_readme_without_marks_is_rejected(self):
        with self.assertRaisesRegex(comparison.Unavailable, "bench/README.md: expected the lines"):
            cpu_tables.with_tables("# bench\n", cpu_tables.RESULTS)

    def test_writing_tables_is_idempotent(self):
        with tempfile.TemporaryDirectory() as directory:
            directory = pathlib.Path(directory)
            (directory / "results" / "a-cpu").mkdir(parents=True)
            entry = {"stage": "allreduce", "outcome": "left out", "why": "no mpirun", "processor": "P", "cores": 2,
                     "command": "c", "date": "d", "quick": False}
            (directory / "results" / "a-cpu" / "allreduce.json").write_text(json.dumps(entry))
            readme = directory / "README.md"
            readme.write_text(f"before\n{cpu_tables.BEGIN}\nold\n{cpu_tables.END}\nafter\n")
            cpu_tables.write_all(directory / "results", readme)
            once = readme.read_text()
            cpu_tables.write_all(directory / "results", readme)
            self.assertEqual(readme.read_text(), once)
            self.assertTrue(once.startswith("before\n") and once.endswith("\nafter\n"))
            self.assertIn("| left out: no mpirun | ≥ 6 |", once)
            self.assertNotIn("old", once)


if __name__ == "__main__":
    unittest.main()
