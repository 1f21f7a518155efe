// Comparison of arithmetic with broadcasting, reductions and movement with PyTorch (tests/reference/ops.py). The
// inputs are equal and exact in f32. The operations are computed in f32 and f64, and PyTorch's results in f64.
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

/// An op at the shapes at which PyTorch's values are stored.
struct ParityCase {
  const char* name;
  std::vector<Shape> inputs;
  std::function<Variable(const std::vector<Variable>&)> op;
  double offset = 0;  // of the arguments
};

Tensor even_positions(const DeviceContext& device) {
  return Tensor::from<std::uint8_t>({1, 0, 1, 0, 1}, {5}, device);
}

std::vector<ParityCase> parity_cases() {
  const Shape a{3, 1, 5}, b{4, 1}, cube{3, 4, 5};
  return {
      {"add", {a, b}, [](auto& x) { return x[0] + x[1]; }},
      {"sub", {a, b}, [](auto& x) { return x[0] - x[1]; }},
      {"mul", {a, b}, [](auto& x) { return x[0] * x[1]; }},
      {"div", {a, b}, [](auto& x) { return x[0] / x[1]; }, 2},
      {"maximum", {a, b}, [](auto& x) { return maximum(x[0], x[1]); }},
      {"minimum", {a, b}, [](auto& x) { return minimum(x[0], x[1]); }},
      {"where", {a, b}, [](auto& x) { return where(even_positions(x[0].context()), x[0], x[1]); }},
      {"sum",
       {cube},
       [](auto& x) {
         return sum(x[0], {0, 2});
       }},
      {"mean",
       {cube},
       [](auto& x) {
         return mean(x[0], {1, -1}, true);
       }},
      {"variance",
       {cube},
       [](auto& x) {
         return variance(x[0], {0, 2});
       }},
      {"max", {cube}, [](auto& x) { return max(x[0], 1); }},
      {"min", {cube}, [](auto& x) { return min(x[0], -1, true); }},
      {"softmax", {cube}, [](auto& x) { return softmax(x[0], 1); }},
      {"log_softmax", {cube}, [](auto& x) { return log_softmax(x[0]); }},
      {"permute",
       {cube},
       [](auto& x) {
         return permute(x[0], {2, 0, 1});
       }},
      {"transpose", {cube}, [](auto& x) { return transpose(x[0], 0, 2); }},
      {"slice", {{3, 6, 2}}, [](auto& x) { return slice(x[0], 1, 1, -1, 2); }},
      {"concat",
       {{3, 2}, {3, 4}},
       [](auto& x) {
         return concat({x[0], x[1], x[0]}, 1);
       }},
      {"stack",
       {{3, 2}, {3, 2}},
       [](auto& x) {
         return stack({x[0], x[1]}, -1);
       }},
      {"pad",
       {{3, 2, 4}},
       [](auto& x) {
         return pad(x[0], {{0, 0}, {2, 1}, {1, 0}}, 0.5);
       }},
  };
}

class ArrayParity : public ::testing::TestWithParam<DType> {};

// Sums have at most 60 terms of similar magnitude. Each result has an error of a few roundings of its largest
// term, so of at most 60 roundings of the largest result after cancellation by a factor of 10.
TEST_P(ArrayParity, MatchesPyTorch) {
  static const Reference stored("ops.safetensors");
  const double tolerance = GetParam() == DType::f64 ? 60 * 0x1p-53 : 60 * 0x1p-24;
  for (const ParityCase& c : parity_cases()) {
    const std::string name = c.name, letters = "ab";
    std::vector<Variable> x;
    for (std::size_t i = 0; i < c.inputs.size(); ++i)
      x.emplace_back(formula_values(name + "/" + letters[i], c.inputs[i], GetParam(), 1, c.offset), true);
    const Variable y = c.op(x);
    backward(y, {.seed = formula_values(name + "/dy", y.shape(), GetParam())});
    EXPECT_TRUE(near(y.value(), stored.at(name + "/y"), tolerance)) << name;
    EXPECT_EQ(y.shape(), stored.at(name + "/y").shape()) << name;
    for (std::size_t i = 0; i < x.size(); ++i)
      EXPECT_TRUE(near(x[i].grad(), stored.at(name + "/d" + letters[i]), tolerance))
          << name << ", input " << letters[i];
  }
}

INSTANTIATE_TEST_SUITE_P(, ArrayParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
