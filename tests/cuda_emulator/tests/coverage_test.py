#!/usr/bin/env python3
"""Tests of coverage.py: kernels that were never launched, and missing or old libraries."""
import contextlib
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

import coverage

# nvcc's names of two kernels of sum.cu: scale(float*), and sum<2, float> in an anonymous namespace.
SCALE = "_Z5scalePf"
SUM = "_ZN6convoy38_GLOBAL__N__0bc0c75d_6_sum_cu_0c3d882c3sumILi2EfEEvPKT0_"


def stub(kernel):
    name = coverage.STUB + kernel
    return (f"00000000000001c8 b _ZZL{len(name)}{name}PfE8__handle\n"
            f"00000000000001c0 b _ZGVZL{len(name)}{name}PfE5__tmp\n")


LIBRARY = "\nsum.cu.o:\n                 U cudaLaunchKernel\n" + stub(SCALE) + stub(SUM)
PROGRAM = """\
0000000000001000 T scale(float*)
0000000000002000 t void convoy::(anonymous namespace)::sum<2, float>(float const*)
0000000000002000 d not_code
                 U malloc
"""


class Coverage(unittest.TestCase):
    def setUp(self):
        self.directory = pathlib.Path(self.enter(tempfile.TemporaryDirectory()))
        self.archive = self.directory / "build" / "kernels" / "libconvoy_kernels.a"
        self.archive.parent.mkdir(parents=True)
        self.sources = self.directory / "kernels"
        self.sources.mkdir()
        (self.sources / "sum.cu").touch()
        self.archive.touch()
        os.utime(self.sources / "sum.cu", (1000, 1000))
        os.utime(self.archive, (2000, 2000))

    def enter(self, context):
        value = context.__enter__()
        self.addCleanup(context.__exit__, None, None, None)
        return value

    def outcome(self, log):
        """Returns the exit code and the output for these log lines."""
        (self.directory / "1.txt").write_text(log)

        def run(*command, text=None):
            if command[0] == "nm":
                return LIBRARY if command[-1] == str(self.archive) else PROGRAM
            return real_run(*command, text=text)

        real_run = coverage.run
        output = io.StringIO()
        with mock.patch.object(coverage, "run", run), contextlib.redirect_stdout(output):
            code = coverage.main(["--build", str(self.directory / "build"), "--log", str(self.directory),
                                  "--sources", str(self.sources)])
        return code, output.getvalue()

    def test_all_launched(self):
        code, output = self.outcome("/bin/a test 1000 256 0\n/bin/a test 2000 64 128\n")
        self.assertEqual(code, 0, output)
        self.assertIn("2 of 2 kernels", output)

    def test_names_kernel_that_was_never_launched(self):
        code, output = self.outcome("/bin/a test 1000 256 0\n")
        self.assertEqual(code, 1)
        self.assertIn("never launched: void convoy::(anonymous namespace)::sum<2, float>(float const*)\n", output)
        self.assertNotIn("scale", output)

    def test_uses_maximum_over_launches(self):
        launches = coverage.launches_in(["/bin/a 1000 256 0", "/bin/a 1000 64 128", "/bin/a 2000 32 4"])
        self.assertEqual(coverage.named(launches["/bin/a"], PROGRAM),
                         {"scale(float*)": (256, 128),
                          "void convoy::(anonymous namespace)::sum<2, float>(float const*)": (32, 4)})

    def test_empty_log(self):
        code, output = self.outcome("")
        self.assertEqual(code, 1)
        self.assertIn("0 of 2 kernels", output)

    def test_ignores_names_that_compilers_mangle_differently(self):
        ours = "k<int>(std::conditional<(is_same_v<int, h>)||(is_same_v<int, b>), float, int>::type*, long)"
        nvcc = "k<int>(std::conditional<std::is_same_v||std::is_same_v, float, int>::type*, long)"
        other = "k<int>(std::conditional<std::is_same_v, float, int>::type*, int)"
        self.assertEqual(coverage.missing([nvcc], [ours]), [])
        self.assertEqual(coverage.missing([other], [ours]), [other])

    def test_skips_without_library(self):
        self.archive.unlink()
        code, output = self.outcome("/bin/a 1000 256 0\n")
        self.assertEqual(code, coverage.SKIPPED)
        self.assertIn("build the cuda preset", output)

    def test_skips_with_old_library(self):
        os.utime(self.archive, (500, 500))
        code, output = self.outcome("/bin/a 1000 256 0\n")
        self.assertEqual(code, coverage.SKIPPED)
        self.assertIn("older than", output)


if __name__ == "__main__":
    unittest.main()
