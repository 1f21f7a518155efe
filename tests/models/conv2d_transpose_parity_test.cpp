// Comparison of transposed convolutions and their gradients with PyTorch (tests/reference/conv2d_transpose.py).
// The inputs are equal and exact in f32. The operations are computed in f32 and f64, and PyTorch's results in
// f64.
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

struct Case {
  const char* name;
  Shape x;  // [N, H, W, I]
  std::int64_t channels;
  int kernel;
  ConvTranspose2dOptions options;
};

class Conv2dTransposeParity : public ::testing::TestWithParam<DType> {};

// The longest sum has 256 terms, so the bound is that of the convolutions in op_parity_test.cpp.
TEST_P(Conv2dTransposeParity, MatchesPyTorch) {
  static const Reference stored("conv2d_transpose.safetensors");
  const double tolerance = GetParam() == DType::f64 ? 200 * 0x1p-53 : 200 * 0x1p-24;
  for (const Case& c :
       {Case{"k4s2p1", {2, 4, 5, 3}, 4, 4, {.stride = 2, .padding = 1}},
        Case{"k3s2p1o1", {2, 4, 3, 3}, 5, 3, {.stride = 2, .padding = 1, .output_padding = 1}},
        Case{"k2s2p0", {2, 3, 4, 4}, 3, 2, {.stride = 2}},
        Case{"k3s1p1", {1, 5, 5, 16}, 16, 3, {.padding = 1}}}) {
    const std::string name = std::string("conv2d_transpose/") + c.name;
    const auto input = [&](const std::string& argument, const Shape& shape) {
      return Variable(formula_values(name + "/" + argument, shape, GetParam()), true);
    };
    const Variable x = input("x", c.x), filter = input("filter", {c.x[3], c.kernel, c.kernel, c.channels}),
                   bias = input("bias", {c.channels});
    const Variable y = conv2d_transpose(x, filter, bias, c.options);
    backward(y, {.seed = formula_values(name + "/dy", y.shape(), GetParam())});
    EXPECT_TRUE(near(y.value(), stored.at(name + "/y"), tolerance)) << name;
    EXPECT_TRUE(near(x.grad(), stored.at(name + "/dx"), tolerance)) << name;
    EXPECT_TRUE(near(filter.grad(), stored.at(name + "/dfilter"), tolerance)) << name;
    EXPECT_TRUE(near(bias.grad(), stored.at(name + "/dbias"), tolerance)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(, Conv2dTransposeParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
