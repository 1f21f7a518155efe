"""Tests of scripts/plot_trace.py: ticks, formats and errors."""

import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
import plot_trace  # noqa: E402


STEP = [("forward", 0, 3000), ("backward", 3000, 3000), ("optimizer", 6000, 1000)]


def labels(svg, pattern):
    return [text for text in re.findall(r">([^<>]+)</text>", svg) if re.fullmatch(pattern, text)]


class Ticks(unittest.TestCase):
    def test_are_round_and_within_the_axis(self):
        self.assertEqual([label for _, label in plot_trace.ticks(7.0, 6)], ["0", "2", "4", "6"])
        self.assertEqual([label for _, label in plot_trace.ticks(938, 6)], ["0", "200", "400", "600", "800"])
        self.assertEqual([label for _, label in plot_trace.ticks(0.1, 5)], ["0.00", "0.02", "0.04", "0.06", "0.08", "0.10"])
        for length in (0.003, 0.7, 1, 3, 5.5, 600, 391, 12345, 1e6):
            values = plot_trace.ticks(length, 6)
            self.assertTrue(2 < len(values) <= 7, (length, values))
            self.assertLessEqual(values[-1][0], length * (1 + 1e-6))
            for value, label in values:
                self.assertAlmostEqual(float(label), value, delta=1e-9 * length)


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)

    def write_trace(self, spans):
        trace = self.place / "trace.json"
        trace.write_text(json.dumps({"traceEvents": [
            {"ph": "X", "pid": 0, "name": name, "ts": begin, "dur": length} for name, begin, length in spans]}))
        return trace

    def run_script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPTS / "plot_trace.py", *arguments], capture_output=True, text=True,
                              check=False)

    def refusal(self, *arguments):
        """Returns the only line on stderr of a run that fails."""
        result = self.run_script(*arguments)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith("plot_trace.py: "), result.stderr)
        return result.stderr

    def test_suffix_decides_the_format(self):
        trace = self.write_trace(STEP)
        if shutil.which(plot_trace.CONVERTER) is None:
            self.assertIn("needs rsvg-convert", self.refusal(trace, self.place / "a.png", "--step", "1"))
        else:
            for suffix, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
                picture = self.place / f"a{suffix}"
                self.assertEqual(self.run_script(trace, picture, "--step", "1").returncode, 0)
                self.assertEqual(picture.read_bytes()[:4], start)
        self.assertIn("found the suffix '.jpg', expected .svg, .png or .pdf", self.refusal(trace, self.place / "a.jpg"))

    def test_errors_are_one_line(self):
        picture = self.place / "a.svg"
        self.assertIn("absent: No such file", self.refusal("absent", picture))
        trace = self.place / "other.json"
        trace.write_text("[]")
        self.assertIn("no trace, expected", self.refusal(trace, picture))
        self.assertIn("no spans of a training step", self.refusal(self.write_trace([]), picture))
        self.assertIn("rank 0 has 1 steps, expected 2 or more", self.refusal(self.write_trace(STEP), picture, "--step", "2"))
        self.assertFalse(picture.exists())

    def test_labels_the_places_of_its_ticks(self):
        result = self.run_script(self.write_trace(STEP), self.place / "new" / "a.svg", "--step", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        svg = (self.place / "new" / "a.svg").read_text()
        self.assertEqual(labels(svg, r"[0-9.]+ ms"), ["0 ms", "2 ms", "4 ms", "6 ms"])
        places = [float(x) for x in re.findall(r'<line x1="([0-9.]+)"', svg)]
        self.assertEqual(places, [96.0, 304.0, 512.0, 720.0])  # 728 columns are 7 ms


if __name__ == "__main__":
    unittest.main()
