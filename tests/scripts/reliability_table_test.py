"""Tests of scripts/reliability_table.py."""

import importlib.util
import pathlib
import unittest

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "scripts" / "reliability_table.py"
spec = importlib.util.spec_from_file_location("reliability_table", SCRIPT)
table = importlib.util.module_from_spec(spec)
spec.loader.exec_module(table)

OUTPUT = """
12: [ RUN      ] KilledRanks
12: fault | a killed rank | 0.5 | the others exit | some steps
12: fault | a killed rank | 0.25 | the others exit | some steps
12: fault | a killed rank | 3 | the others exit | some steps
13: fault | a stopped rank | 1 | named | nothing
13: fault | incomplete
""".splitlines()


class Table(unittest.TestCase):
    def test_rows_are_grouped(self):
        rows = table.parse(OUTPUT)
        self.assertEqual(rows[("a killed rank", "the others exit", "some steps")], [0.5, 0.25, 3])
        self.assertEqual(len(rows), 2)

    def test_skipped_tests_are_named(self):
        line = "2/9 Test #4705: test.TwoHostTraining.Name ............***Skipped   0.01 sec"
        self.assertEqual(table.skipped([line, "3/9 Test #1: a ... Passed"]), {"test.TwoHostTraining.Name"})

    def test_table(self):
        lines = table.format_table(table.parse(OUTPUT)).splitlines()
        self.assertEqual(lines[2], "| a killed rank | 3 | the others exit | 0.5 (3) | some steps |")
        self.assertEqual(lines[3], "| a stopped rank | 1 | named | 1 (1) | nothing |")


if __name__ == "__main__":
    unittest.main()
