"""Tests of scripts/record_terminal.py: the screen, the times of the picture, and a program in a terminal."""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SCRIPTS = pathlib.Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
sys.dont_write_bytecode = True
import record_terminal  # noqa: E402


def rows_of(*texts, columns=20, rows=4):
    screen = record_terminal.Screen(columns, rows)
    for text in texts:
        screen.write(text)
    return screen.visible()


class TheScreen(unittest.TestCase):
    def test_draws_a_progress_line_in_place(self):
        self.assertEqual(rows_of("a\r\n", "\rstep 10\x1b[K", "\rstep 9\x1b[K"), ["a", "step 9"])
        self.assertEqual(rows_of("longer\rab"), ["abnger"])
        self.assertEqual(rows_of("\x1b[31mred\x1b[0m\x07"), ["red"])

    def test_scrolls_and_continues_long_lines(self):
        self.assertEqual(rows_of("1\r\n2\r\n3\r\n4\r\n5"), ["2", "3", "4", "5"])
        self.assertEqual(rows_of("abcdefgh", columns=5), ["abcde", "fgh"])


class ThePicture(unittest.TestCase):
    EVENTS = [(1.0, "step 0"), (1.1, "\rstep 1\x1b[K"), (2.0, "\rstep 2 <&\x1b[K"), (60.0, "\r\x1b[Kdone\r\n")]

    def test_keeps_times_and_shortens_pauses(self):
        found = record_terminal.screens("train", self.EVENTS, pause=3)
        self.assertEqual([seconds for seconds, _ in found], [0, 1, 2, 5])
        self.assertEqual(found[-1][1], ["$ train", "done", ""])
        end = 5 + record_terminal.END_SECONDS
        self.assertEqual(record_terminal.spans(found, end), [
            (0, "$ train", 0, end), (1, "done", 5, end), (1, "step 1", 1, 2), (1, "step 2 <&", 2, 5)])

    def test_shows_the_last_screen_without_animation(self):
        svg = record_terminal.to_svg(record_terminal.screens("train", self.EVENTS, pause=3))
        root = xml.etree.ElementTree.fromstring(svg)
        texts = {text.text: text for text in root.iter("{http://www.w3.org/2000/svg}text")}
        self.assertEqual({name for name, text in texts.items() if text.get("visibility") != "hidden"}, {"$ train", "done"})
        self.assertEqual(set(texts), {"$ train", "step 1", "step 2 <&", "done"})
        self.assertNotIn("<script", svg)
        name = texts["step 1"].get("id")
        frames = re.search(rf"@keyframes {name}{{(.*?)}}#{name}", svg)[1]
        self.assertEqual(frames, "0.00%{visibility:hidden}10.00%{visibility:visible}20.00%{visibility:hidden}"
                                 "100%{visibility:hidden}")


class ThePrograms(unittest.TestCase):
    def run_script(self, *arguments):
        return subprocess.run([sys.executable, "-B", SCRIPTS / "record_terminal.py", *arguments], capture_output=True,
                              text=True, check=False, timeout=50)

    def test_records_a_program_that_sees_a_terminal(self):
        with tempfile.TemporaryDirectory() as place:
            picture = pathlib.Path(place) / "a.svg"
            result = self.run_script(picture, "--columns", "77", "--", "sh", "-c",
                                     "test -t 1 && stty size && printf 'caf\\303\\251\\n'")
            self.assertEqual(result.returncode, 0, result.stderr)
            texts = re.findall(r">([^<>]+)</text>", picture.read_text(encoding="utf-8"))
            self.assertIn("24 77", texts)
            self.assertIn("café", texts)

    def test_errors_are_one_line(self):
        with tempfile.TemporaryDirectory() as place:
            picture = pathlib.Path(place) / "a.svg"
            for arguments, text in (((picture, "--", "sh", "-c", "echo no; exit 3"), "ended with code 3: no"),
                                    ((picture, "--", "/absent"), "/absent: No such file"),
                                    ((picture, "--columns", "3", "--", "true"), "at least 20 columns"),
                                    ((place, "--", "true"), "Is a directory")):
                result = self.run_script(*arguments)
                self.assertEqual(result.returncode, 1, arguments)
                self.assertIn(text, result.stderr)
                self.assertEqual(result.stderr.count("\n"), 1, result.stderr)
            self.assertFalse(picture.exists())


if __name__ == "__main__":
    unittest.main()
