// Comparison of layer norm and group norm with PyTorch (tests/reference/normalization.py).
#include "convoy/engine/ops/normalization.h"
#include "tests/models/parity_fixture.h"

namespace convoy::testing {
namespace {

class NormalizationParity : public ParityFixture {
 protected:
  NormalizationParity() : ParityFixture("normalization.safetensors") {}
};

TEST_P(NormalizationParity, LayerNorm) {
  for (const auto& [name, normalized] : {std::pair<std::string, Shape>{"layer_norm/one_axis", {7}},
                                         std::pair<std::string, Shape>{"layer_norm/two_axes", {5, 7}}}) {
    const Variable x = input(name + "/x", {3, 5, 7}, 2, 0.5);
    const Variable weight = input(name + "/weight", normalized, 0.5, 1);
    const Variable bias = input(name + "/bias", normalized);
    expect_parity(name, layer_norm(x, normalized, weight, bias),
                  {{"x", x}, {"weight", weight}, {"bias", bias}});
  }
  const Variable x = input("layer_norm/plain/x", {4, 9});
  expect_parity("layer_norm/plain", layer_norm(x, {9}, {}, {}, 1e-3), {{"x", x}});
}

TEST_P(NormalizationParity, GroupNorm) {
  struct Case {
    std::string name;
    Shape shape;
    int groups;
  };
  for (const auto& [name, shape, groups] :
       {Case{"group_norm/g2", {2, 3, 4, 6}, 2}, Case{"group_norm/g6", {2, 3, 4, 6}, 6},
        Case{"group_norm/g1", {2, 3, 4, 6}, 1}, Case{"group_norm/flat", {3, 8}, 2}}) {
    const Variable x = input(name + "/x", shape, 2, 0.5);
    const Variable weight = input(name + "/weight", {shape[-1]}, 0.5, 1);
    const Variable bias = input(name + "/bias", {shape[-1]});
    expect_parity(name, group_norm(x, groups, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}});
  }
}

INSTANTIATE_TEST_SUITE_P(, NormalizationParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
