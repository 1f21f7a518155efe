#!/usr/bin/env python3
"""Tests of docs/reference_filter.py, which prepares headers and pages for Doxygen."""
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs"))
import reference_filter  # noqa: E402


def filtered(declarations):
    """The declarations of a header, without its first line."""
    return reference_filter.header("#pragma once\n" + declarations).removeprefix("/// \\file\n")


class ReferenceFilterTest(unittest.TestCase):
    def test_comment_above_pragma_once_describes_the_file(self):
        self.assertEqual("/// Tensors.\n///\n/// More.\n/// \\file\nint x;\n",
                         reference_filter.header("// Tensors.\n//\n// More.\n#pragma once\nint x;\n"))

    def test_comment_after_declaration_describes_it(self):
        self.assertEqual("int x = 1;  ///< in bytes\n", filtered("int x = 1;  // in bytes\n"))
        for line in ("}  // namespace convoy\n", "// a note\n", "X(int);  // NOLINT: implicit\n", "#endif  // X\n"):
            self.assertEqual(line, filtered(line))

    def test_indented_lines_of_comment_are_code(self):
        self.assertEqual("/// Example: @code\n///   f();\n///   g(); @endcode\nint f();\n",
                         filtered("/// Example:\n///   f();\n///   g();\nint f();\n"))
        for text in ("/// 1. First\n///    and more.\n", "int f(int x,\n      int y);\n"):
            self.assertEqual(text, filtered(text))

    def test_kernels_are_left_out_and_lines_are_kept(self):
        self.assertEqual("\n\n\nint x;\n", filtered(
            "void add(CpuStream&, View z);\nvoid add(CudaStream&,\n         View z);\nint x;\n"))

    def test_links_that_leave_the_pages_become_text(self):
        self.assertEqual("see it\nhere and [a](b.md) and [c](d.md), top", reference_filter.page(
            "see [it\nhere](../README.md) and [a](b.md) and [c](d.md#e), [top](#top)"))

    def test_every_header_keeps_its_number_of_lines(self):
        for path in [*ROOT.glob("engine/**/*.h"), *ROOT.glob("kernels/*.h")]:
            text = path.read_text(encoding="utf-8")
            self.assertEqual(text.count("\n"), reference_filter.header(text).count("\n"), path)


if __name__ == "__main__":
    unittest.main()
