"""Tests of scripts/check_skips.py, and that each test of this project skips for a capability that it knows."""

import pathlib
import re
import sys
import tempfile
import unittest
from xml.sax.saxutils import escape

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import check_skips  # noqa: E402

# What sources write at a skip instead of a text, and where its texts are.
VARIABLES = {"kNeedsMount": "tests/testing/support/process.h", "no_python(": "tests/apps/find_python.h",
             "missing;": "tests/testing/support/two_hosts.cpp", "TwoHosts::missing()": "tests/testing/support/two_hosts.cpp"}


def gtest_output(name, reason):
    return (f"[ RUN      ] {name}\n/tree/test.cpp:12: Skipped\n{reason}\n\n[  SKIPPED ] {name} (0 ms)\n"
            f"[ RUN      ] Other.Test\n[       OK ] Other.Test (1 ms)\n[  PASSED  ] 1 test.\n"
            f"[  SKIPPED ] 1 test, listed below:\n[  SKIPPED ] {name}\n")


class CheckSkips(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.root = pathlib.Path(directory.name)

    def check(self, output, cache="", skipped=""):
        build = self.root / "build" / "test"
        build.mkdir(parents=True, exist_ok=True)
        (build / "CMakeCache.txt").write_text(cache)
        report = self.root / "junit.xml"
        report.write_text(f'<testsuite><testcase name="test.a.B" status="run">{skipped}<system-out>{escape(output)}'
                          "</system-out></testcase></testsuite>")
        return check_skips.check(report, self.root)

    def test_accepts_a_capability_that_is_missing(self):
        lacking, problems = self.check(gtest_output("A.B", "needs a build with AddressSanitizer"), "CONVOY_SANITIZE:STRING=\n")
        self.assertEqual((dict(lacking), problems), ({"needs a build with AddressSanitizer": 1}, []))

    def test_refuses_a_capability_that_is_there(self):
        _, problems = self.check(gtest_output("A.B", "needs a build with AddressSanitizer"),
                                 "CONVOY_SANITIZE:STRING=address,undefined\n")
        self.assertEqual(problems, ["test.a.B: A.B was skipped, and this machine has the capability: "
                                    "'needs a build with AddressSanitizer'"])

    def test_refuses_the_text_of_an_error(self):
        _, problems = self.check(gtest_output("A.B", "could not create a primitive (status 3)"))
        self.assertIn("names no capability that is known: 'could not create a primitive (status 3)'", problems[0])

    def test_refuses_a_skip_without_a_reason(self):
        _, problems = self.check(gtest_output("A.B", ""))
        self.assertIn("A.B names no capability that is known: ''", problems[0])
        _, problems = self.check("no output", skipped='<skipped message="SKIP_RETURN_CODE"/>')
        self.assertEqual(problems, ["test.a.B: skipped without a reason"])

    def test_finds_a_gpu_that_the_build_emulates(self):
        output = gtest_output("Cuda.A", "needs a GPU: cudaGetDeviceCount failed")
        self.assertEqual(len(self.check(output, "CONVOY_CUDA:STRING=emulator\n")[1]), 1)
        self.assertEqual(self.check(output, "CONVOY_CUDA:STRING=OFF\n")[1], [])

    def test_reads_unittest_and_scripts(self):
        output = "test_a (__main__.A.test_a)\nText. ... skipped 'no reason at all'\ntest_b (__main__.A) ... skipped 'neither'\n"
        self.assertEqual(check_skips.skips_of(output)[-1], ("test_b", "neither"))
        line = "skipped: /build/cuda has no objects with uncompressed PTX for sm_90; run scripts/test.sh cuda"
        self.assertEqual(self.check(line, skipped='<skipped message="SKIP_RETURN_CODE"/>')[1], [])

    def test_each_test_of_the_tree_names_a_known_capability(self):
        for source in sorted([*ROOT.glob("tests/**/*.cpp"), *ROOT.glob("tests/**/*.h")]):
            for statement in re.findall(r"GTEST_SKIP\(\)(\s*(?:<<[^;]*)?;)", source.read_text()):
                with self.subTest(source=source.relative_to(ROOT), statement=statement):
                    reason = re.match(r'\s*<<\s*"([^"]*)"', statement)
                    if reason:
                        text = reason.group(1) + ("4 GPUs" if "<< ranks" in statement else "")
                        self.assertIsNotNone(check_skips.find_capability(text))
                    else:
                        self.assertTrue(any(variable in statement for variable in VARIABLES))
        for source in set(VARIABLES.values()):
            texts = re.findall(r'"(needs [^"]*)"', (ROOT / source).read_text())
            self.assertTrue(texts, source)
            for text in texts:
                self.assertIsNotNone(check_skips.find_capability(text + "numpy"), text)


if __name__ == "__main__":
    unittest.main()
