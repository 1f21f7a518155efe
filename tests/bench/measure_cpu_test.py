"""Tests of bench/python/measure_cpu.py with fake programs, and that its tables match the JSON files."""

import json
import math
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

PYTHON = pathlib.Path(__file__).resolve().parents[2] / "bench" / "python"
sys.path.insert(0, str(PYTHON))
import compare  # noqa: E402
import cpu_goals  # noqa: E402
import cpu_tables  # noqa: E402
import measure_cpu  # noqa: E402
from compare_test import STEP, Programs  # noqa: E402
from comparisons import harness  # noqa: E402

ALL_REDUCE = """
mpi = {"ratio": RATIO, "lowest": 2.0, "highest": 3.0, "time_us": 5000}
report(rows=[{"in_place": {"p50_us": 2000, "p99_us": 3000, "mpi": mpi}}])
"""


def run(*flags):
    return subprocess.run([sys.executable, "-B", PYTHON / "measure_cpu.py", *map(str, flags)], capture_output=True,
                          text=True)


class MeasureCpu(Programs):
    def setUp(self):
        super().setUp()
        self.out = self.directory / "out"

    def measure(self, *flags):
        done = run("--build", self.directory, "--out", self.out, "--mpirun", self.mpirun, "--python",
                   "/nowhere/python", "--data", self.directory / "data", *flags)
        self.assertNotIn("Traceback", done.stderr)
        return done

    def entry(self, stage):
        return json.loads((self.out / f"{stage}.json").read_text())


class Stages(MeasureCpu):
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
        done = self.measure("--only", "step_resnet18,loader,accuracy,allreduce", "--mpirun",
                            "/nowhere/m")
        self.assertEqual(done.returncode, 0, done.stderr)
        for line in ("step_resnet18: left out: /nowhere/python: No such file or directory",
                     "loader: left out: /nowhere/python: No such file or directory",
                     f"accuracy: left out: no directory {self.directory}/data/cifar10/train; set --data",
                     "allreduce: left out: no /nowhere/m"):
            self.assertIn(line, done.stdout)
        self.assertIn("| left out: no /nowhere/m | ≥ 6 |", (self.out / "goals.md").read_text())

    def test_a_python_without_torch_is_named(self):
        machine = measure_cpu.Machine(mock.Mock(python=sys.executable))
        self.assertIn("no no_such_module: ModuleNotFoundError", machine.reason_without_module("no_such_module"))
        self.assertEqual(machine.reason_without_module("json"), "")

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
        entry = {"stage": "allreduce", "outcome": "failed", "why": "", "processor": "Z80", "cores": 1, "quick": False}
        (self.out / "allreduce.json").write_text(json.dumps(entry))
        done = self.measure("--only", "allreduce")
        self.assertEqual(done.returncode, 2)
        self.assertIn("found results of Z80, 1 cores, expected those of", done.stderr)

    def test_a_rehearsal_replaces_flags(self):
        stage = next(stage for stage in cpu_goals.STAGES if stage.name == "step_resnet18")
        words = measure_cpu.stage_command(stage, quick=True)
        self.assertEqual(words.count("--model"), 1)
        self.assertNotIn("resnet18", words)
        self.assertEqual(measure_cpu.stage_command(stage, quick=False), stage.command)

    def test_invalid_flags_are_rejected(self):
        for flags, what in (
            (("--only", "allreduse"), "--only: found 'allreduse', expected kernels, step_resnet18"),
            (("--quick", "--build", self.directory), "--quick: requires --out"),
            (("--build", "/nowhere"), "--build: found no /nowhere/bin/convoy-train"),
            (("--build", self.directory, "--out", self.out, "--machine", "m"), "--machine: found --out"),
        ):
            done = run(*flags)
            self.assertEqual(done.returncode, 2, flags)
            self.assertIn(what, done.stderr)

    def test_a_comparison_gets_the_programs_of_the_machine(self):
        options = mock.Mock(build=pathlib.Path("/b"), python="py", mpirun="mpirun -x A", quick=False)
        by_name = {stage.name: [str(word) for word in measure_cpu.executed_command(stage, options)[2:]]
                   for stage in cpu_goals.STAGES}
        self.assertEqual(by_name["ranks"][1:], ["ranks", "--ranks", "2", "--model", "resnet18", "--batch-size", "128",
                                                "--build", "/b", "--time-limit", "480", "--mpirun", "mpirun -x A"])
        self.assertEqual(by_name["cold_start"][1:], ["step", "--model", "resnet18", "--batch-size", "128",
                                                     "--cold-start", "--build", "/b", "--time-limit", "180", "--python", "py"])
        for stage in cpu_goals.STAGES:  # compare.py accepts the flags of each
            if stage.is_comparison:
                compare.parser().parse_args(by_name[stage.name][1:])


class Goals(unittest.TestCase):
    def test_bounds(self):
        minimum = cpu_goals.Goal("", 2, lambda number: ("", number))
        maximum = cpu_goals.Goal("", 2, lambda number: ("", number), at_most=True)
        self.assertEqual([minimum.row(number)[1] for number in (1.9, 2, None)], [False, True, None])
        self.assertEqual([maximum.row(number)[1] for number in (1.9, 2, 2.1)], [True, True, False])
        self.assertEqual((minimum.target(), maximum.target()), ("≥ 2", "≤ 2"))

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
        with self.assertRaisesRegex(harness.Unavailable, "bench/README.md: expected the lines"):
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
