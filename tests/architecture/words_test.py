"""The tree uses none of the words of scripts/check_words.py, and a planted one is found."""
import pathlib
import subprocess
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import check_words  # noqa: E402


class Words(unittest.TestCase):
    def test_the_tree_has_none(self):
        run = subprocess.run([sys.executable, "-B", ROOT / "scripts" / "check_words.py"], capture_output=True, text=True)
        self.assertEqual(run.returncode, 0, run.stdout[-4000:] + run.stderr)

    def test_planted_words_are_found(self):
        for text in ("// Nobody waits.", "the figure beside it", "int kMostBytes = 1;", "most_bytes", "text_of_rank(1)",
                     "TempFolder folder;", "data_folder", "a half copy", "a rank that fell silent"):
            with self.subTest(text):
                self.assertEqual(len([line for line in check_words.problems("planted", text)]), 1)

    def test_ordinary_words_pass(self):
        for text in ("at most 3 bytes", "besides", "the largest", "read_image_folder(data)", "--dataset folder",
                     "excellent", "std::max", "besides the ranks"):
            with self.subTest(text):
                self.assertEqual(check_words.problems("planted", text), [])


if __name__ == "__main__":
    unittest.main()
