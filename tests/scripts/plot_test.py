"""Tests of scripts/plot_log.py and scripts/plot_trace.py: ticks, formats and errors."""

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
import pictures  # noqa: E402


def labels(svg, pattern):
    return [text for text in re.findall(r">([^<>]+)</text>", svg) if re.fullmatch(pattern, text)]


class Ticks(unittest.TestCase):
    def test_are_round_and_within_the_axis(self):
        self.assertEqual([label for _, label in pictures.ticks(7.0, 6)], ["0", "2", "4", "6"])
        self.assertEqual([label for _, label in pictures.ticks(938, 6)], ["0", "200", "400", "600", "800"])
        self.assertEqual([label for _, label in pictures.ticks(0.1, 5)], ["0.00", "0.02", "0.04", "0.06", "0.08", "0.10"])
        for length in (0.003, 0.7, 1, 3, 5.5, 600, 391, 12345, 1e6):
            values = pictures.ticks(length, 6)
            self.assertTrue(2 < len(values) <= 7, (length, values))
            self.assertLessEqual(values[-1][0], length * (1 + 1e-6))
            for value, label in values:
                self.assertAlmostEqual(float(label), value, delta=1e-9 * length)


class Programs(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.place = pathlib.Path(directory.name)

    def run_script(self, name, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPTS / name, *arguments], capture_output=True, text=True,
                              check=False)

    def refusal(self, name, *arguments):
        """Returns the only line on stderr of a run that fails."""
        result = self.run_script(name, *arguments)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
        self.assertTrue(result.stderr.startswith(f"{name}: "), result.stderr)
        return result.stderr

    def write_run(self, name, with_result=True):
        run = self.place / name
        run.mkdir()
        events = [{"event": "start", "config": {"model": "lenet", "dataset": "mnist"}}]
        events += [{"event": "step", "step": step, "loss": 2.3 / step} for step in range(1, 939)]
        events += [{"event": "eval", "step": 938, "accuracy": 0.9}]
        if with_result:
            events += [{"event": "result", "test_accuracy": 0.9, "train_seconds": 7}]
        (run / "log.jsonl").write_text("".join(json.dumps(event) + "\n" for event in events))
        return run

    def test_log_has_round_ticks(self):
        picture = self.place / "new" / "curves.svg"
        result = self.run_script("plot_log.py", self.write_run("run"), picture)
        self.assertEqual(result.returncode, 0, result.stderr)
        svg = picture.read_text()
        self.assertEqual(labels(svg, r"[0-9.]+"), ["0.0", "0.5", "1.0", "1.5", "2.0", "2.5",
                                                   "0", "200", "400", "600", "800"])
        self.assertIn("lenet on mnist: 90.00% after 7 s", svg)

    def test_log_of_a_run_in_progress_is_drawn(self):
        run = self.write_run("run", with_result=False)
        with open(run / "log.jsonl", "a", encoding="utf-8") as log:
            log.write('{"event":"st')
        result = self.run_script("plot_log.py", run, self.place / "curves.svg")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("lenet on mnist: not complete", (self.place / "curves.svg").read_text())

    def test_suffix_decides_the_format(self):
        run = self.write_run("run")
        if shutil.which(pictures.CONVERTER) is None:
            self.assertIn("needs rsvg-convert", self.refusal("plot_log.py", run, self.place / "a.png"))
        else:
            for suffix, start in ((".png", b"\x89PNG"), (".pdf", b"%PDF")):
                picture = self.place / f"a{suffix}"
                self.assertEqual(self.run_script("plot_log.py", run, picture).returncode, 0)
                self.assertEqual(picture.read_bytes()[:4], start)
        self.assertIn("found the suffix '.jpg', expected .svg, .png or .pdf",
                      self.refusal("plot_log.py", run, self.place / "a.jpg"))

    def test_errors_are_one_line(self):
        picture = self.place / "a.svg"
        self.assertIn("absent/log.jsonl: No such file", self.refusal("plot_log.py", "absent", picture))
        run = self.write_run("run")
        (run / "log.jsonl").write_text("[]\n")
        self.assertIn("log.jsonl:1: no event of a log", self.refusal("plot_log.py", run, picture))
        (run / "log.jsonl").write_text('{"event": "start"}\n')
        self.assertIn("no logged step", self.refusal("plot_log.py", run, picture))
        self.assertIn("absent: No such file", self.refusal("plot_trace.py", "absent", picture))
        self.assertIn("no trace, expected", self.refusal("plot_trace.py", run / "log.jsonl", picture))
        trace = self.place / "empty.json"
        trace.write_text('{"traceEvents": []}')
        self.assertIn("no spans of a training step", self.refusal("plot_trace.py", trace, picture))
        self.assertFalse(picture.exists())

    def test_trace_labels_the_places_of_its_ticks(self):
        spans = [("forward", 0, 3000), ("backward", 3000, 3000), ("optimizer", 6000, 1000)]
        trace = self.place / "trace.json"
        trace.write_text(json.dumps({"traceEvents": [
            {"ph": "X", "pid": 0, "name": name, "ts": begin, "dur": length} for name, begin, length in spans]}))
        result = self.run_script("plot_trace.py", trace, self.place / "a.svg", "--step", "1")
        self.assertEqual(result.returncode, 0, result.stderr)
        svg = (self.place / "a.svg").read_text()
        self.assertEqual(labels(svg, r"[0-9.]+ ms"), ["0 ms", "2 ms", "4 ms", "6 ms"])
        places = [float(x) for x in re.findall(r'<line x1="([0-9.]+)"', svg)]
        self.assertEqual(places, [96.0, 304.0, 512.0, 720.0])  # 728 columns are 7 ms


if __name__ == "__main__":
    unittest.main()
