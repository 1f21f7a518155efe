#!/usr/bin/env python3
"""Tests of scripts/layers_page.py: the committed page is the generated one, and what is missing is an error."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import layers_page  # noqa: E402

HEADER = """
/// The options of Scale.
struct ScaleOptions {
  double by = 2;  // the factor
  /// The number that is added.
  int plus{0};
};
/// A layer of [N, C].
class Scale final : public Module {
 public:
  /// Throws UsageError for 0.
  explicit Scale(int channels,
                 ScaleOptions options = {});

 private:
  /// No constructor.
  Scale(bool hidden);
};
/// Returns x (a loss).
Variable loss(const Variable& x, double y = 1);
"""


class LayersPage(unittest.TestCase):
    def test_committed_page_is_generated(self):
        self.assertEqual(layers_page.page(), layers_page.PAGE.read_text(), "run scripts/layers_page.py")

    def test_reads_layers_functions_and_options(self):
        self.assertEqual([("Scale", "A layer of [N, C].",
                           [("int channels, ScaleOptions options = {}", "Throws UsageError for 0.")])],
                         list(layers_page.layers_in(HEADER)))
        self.assertEqual([("loss", "", [("Variable ", "const Variable& x, double y = 1", "Returns x (a loss).")])],
                         list(layers_page.functions_in(HEADER, ())))
        self.assertEqual([], list(layers_page.functions_in(HEADER, ("other",))))
        self.assertEqual({"ScaleOptions": [("double by", "2", "the factor"), ("int plus", "{0}", "The number that is added.")]},
                         layers_page.options_of([HEADER]))

    def test_shows_values_in_comments(self):
        def shown(line):
            return layers_page.re.sub(layers_page.EXPECTATION, layers_page.value_comment, line, flags=layers_page.re.DOTALL)

        self.assertEqual("conv(x, {.a = 1}).shape();  // [2, 4]", shown("EXPECT_EQ(conv(x, {.a = 1}).shape(), (Shape{2, 4}));"))
        self.assertEqual("f(x, y);  // 3: a sum", shown("EXPECT_EQ(f(x, y),\n          3);   // a sum"))

    def test_refuses_declarations_and_examples_without_each_other(self):
        own = layers_page.examples
        try:
            layers_page.examples = lambda: {name: body for name, body in own().items() if name != "Linear"}
            with self.assertRaisesRegex(SystemExit, "engine/nn/layers.h: found no example of .'Linear'."):
                layers_page.page()
            layers_page.examples = lambda: own() | {"absent": "x;"}
            with self.assertRaisesRegex(SystemExit, "found examples of .'absent'., expected their declarations"):
                layers_page.page()
        finally:
            layers_page.examples = own


if __name__ == "__main__":
    unittest.main()
