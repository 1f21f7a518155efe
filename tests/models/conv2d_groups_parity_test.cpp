// Comparison of convolutions with groups and their gradients with PyTorch (tests/reference/conv2d_groups.py).
#include "convoy/engine/ops/ops.h"
#include "tests/models/parity_fixture.h"

namespace convoy::testing {
namespace {

class Conv2dGroupsParity : public ParityFixture {
 protected:
  Conv2dGroupsParity() : ParityFixture("conv2d_groups.safetensors") {}

  void compare(const std::string& name, const Shape& x_shape, const Shape& filter_shape, std::int64_t outputs,
               const std::function<Variable(const Variable&, const Variable&, const Variable&)>& op) const {
    const std::string path = "conv2d_groups/" + name;
    const Variable x = input(path + "/x", x_shape), filter = input(path + "/filter", filter_shape),
                   bias = input(path + "/bias", {outputs});
    expect_parity(path, op(x, filter, bias), {{"x", x}, {"filter", filter}, {"bias", bias}});
  }
};

TEST_P(Conv2dGroupsParity, MatchesPyTorch) {
  const auto convolve = [](Conv2dOptions options) {
    return [options](const Variable& x, const Variable& filter, const Variable& bias) {
      return conv2d(x, filter, bias, options);
    };
  };
  compare("groups", {2, 5, 6, 6}, {9, 3, 3, 2}, 9, convolve({.padding = 1, .groups = 3}));
  compare("depthwise", {2, 7, 6, 16}, {16, 3, 3, 1}, 16, convolve({.stride = 2, .padding = 1, .groups = 16}));
  compare("multiplier", {1, 5, 5, 4}, {12, 3, 3, 1}, 12, convolve({.padding = 1, .groups = 4}));
  compare("transposed", {2, 3, 4, 6}, {6, 4, 4, 3}, 9,
          [](const Variable& x, const Variable& filter, const Variable& bias) {
            return conv2d_transpose(x, filter, bias, {.stride = 2, .padding = 1, .groups = 3});
          });
}

INSTANTIATE_TEST_SUITE_P(, Conv2dGroupsParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
