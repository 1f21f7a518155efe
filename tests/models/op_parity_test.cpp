// Comparison of single operations and their gradients with PyTorch (tests/reference/ops.py). The inputs are
// equal and exact in f32. The operations are computed in f32 and f64, and PyTorch's results in f64.
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

const Reference& reference() {
  static const Reference stored("ops.safetensors");
  return stored;
}

class OpParity : public ::testing::TestWithParam<DType> {
 protected:
  // Returns the bound of the maximum error relative to the maximum value. The longest sum has about 300 terms
  // of similar magnitude, so its rounding error is below sqrt(300) eps of the sum of the magnitudes.
  // Cancellation amplifies it by at most 10. The bound is 200 eps.
  double tolerance() const { return GetParam() == DType::f64 ? 200 * 0x1p-53 : 200 * 0x1p-24; }

  Tensor values(const std::string& name, const Shape& shape, double scale = 1, double offset = 0) const {
    return formula_values(name, shape, GetParam(), scale, offset);
  }
  Variable input(const std::string& name, const Shape& shape, double scale = 1, double offset = 0) const {
    return Variable(values(name, shape, scale, offset), true);
  }
  void expect_near(const Tensor& actual, const std::string& name) const {
    EXPECT_TRUE(near(actual, reference().at(name), tolerance())) << name;
  }
  // Compares y, and the gradients of the inputs for a generated dy.
  void expect_parity(const std::string& name, const Variable& y,
                     const std::vector<std::pair<std::string, Variable>>& inputs) const {
    expect_near(y.value(), name + "/y");
    backward(y, {.seed = values(name + "/dy", y.shape())});
    for (const auto& [input_name, x] : inputs) expect_near(x.grad(), name + "/d" + input_name);
  }
};

TEST_P(OpParity, Conv2d) {
  struct Case {
    std::string name;
    Shape x;  // [N, H, W, I]
    std::int64_t channels;
    int kernel, stride, padding;
  };
  for (const Case& c : {Case{"k3s1p1", {2, 5, 6, 3}, 4, 3, 1, 1}, Case{"k3s2p1", {2, 7, 6, 3}, 4, 3, 2, 1},
                        Case{"k5s1p0", {2, 7, 6, 2}, 3, 5, 1, 0}, Case{"k1s2p0", {2, 5, 6, 4}, 5, 1, 2, 0},
                        Case{"k7s2p3", {1, 9, 8, 3}, 4, 7, 2, 3}, Case{"k2s3p1", {2, 7, 8, 2}, 3, 2, 3, 1},
                        Case{"k3s1p1_16", {1, 7, 7, 16}, 16, 3, 1, 1}}) {
    const std::string name = "conv2d/" + c.name;
    const Variable x = input(name + "/x", c.x);
    const Variable filter = input(name + "/filter", {c.channels, c.kernel, c.kernel, c.x[3]});
    const Variable bias = input(name + "/bias", {c.channels});
    expect_parity(name, conv2d(x, filter, bias, {.stride = c.stride, .padding = c.padding}),
                  {{"x", x}, {"filter", filter}, {"bias", bias}});
  }
}

TEST_P(OpParity, BatchNorm) {
  for (const auto& [name, shape] : {std::pair<std::string, Shape>{"batch_norm/image", {4, 3, 2, 3}},
                                    std::pair<std::string, Shape>{"batch_norm/flat", {6, 5}}}) {
    const std::int64_t channels = shape[-1];
    const Variable gamma = input(name + "/gamma", {channels}, 0.5, 1),
                   beta = input(name + "/beta", {channels});
    const BatchNormStatistics running{Tensor::zeros({channels}, GetParam(), Device::cpu()),
                                      Tensor::full({channels}, 1, GetParam(), Device::cpu())};
    Variable x, y;
    for (int step = 0; step < 3; ++step) {  // the reference has the results of the last step
      x = input(name + "/x" + std::to_string(step), shape, 2, 0.5);
      y = batch_norm(x, gamma, beta, running, /*training=*/true);
      backward(y, {.seed = values(name + "/dy" + std::to_string(step), shape)});
    }
    expect_near(y.value(), name + "/y");
    expect_near(x.grad(), name + "/dx");
    expect_near(gamma.grad(), name + "/dgamma");
    expect_near(beta.grad(), name + "/dbeta");
    expect_near(running.running_mean, name + "/running_mean");
    expect_near(running.running_var, name + "/running_var");

    x = input(name + "/inference/x", shape);
    expect_parity(name + "/inference", batch_norm(x, gamma, beta, running, /*training=*/false),
                  {{"x", x}, {"gamma", gamma}, {"beta", beta}});
  }
}

TEST_P(OpParity, Pools) {
  for (const auto& [window, options] :
       {std::pair<std::string, Pool2dOptions>{"k2s2p0", {.kernel = 2, .stride = 2, .padding = 0}},
        std::pair<std::string, Pool2dOptions>{"k3s2p1", {.kernel = 3, .stride = 2, .padding = 1}}}) {
    const Variable for_max = input("max_pool/" + window + "/x", {2, 7, 6, 3});
    expect_parity("max_pool/" + window, max_pool2d(for_max, options), {{"x", for_max}});
    const Variable for_mean = input("avg_pool/" + window + "/x", {2, 7, 6, 3});
    expect_parity("avg_pool/" + window, avg_pool2d(for_mean, options), {{"x", for_mean}});
  }
  const Variable x = input("global_avg_pool/x", {2, 5, 4, 3});
  expect_parity("global_avg_pool", global_avg_pool2d(x), {{"x", x}});
}

TEST_P(OpParity, Activations) {
  for (const UnaryOp& unary : unary_ops()) {
    const std::string name = unary.name;
    const Variable x = input(name + "/x", {5, 7}, unary.parity_bound, unary.domain.center);
    expect_parity(name, unary.op(x), {{"x", x}});
  }
}

TEST_P(OpParity, Linear) {
  const Variable x = input("linear/x", {3, 5}), weight = input("linear/weight", {4, 5});
  const Variable bias = input("linear/bias", {4});
  expect_parity("linear", linear(x, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}});
}

TEST_P(OpParity, CrossEntropy) {
  for (const auto& [name, smoothing] : {std::pair<std::string, double>{"cross_entropy/plain", 0.0},
                                        std::pair<std::string, double>{"cross_entropy/smoothed", 0.1}}) {
    const Variable logits = input(name + "/logits", {5, 7}, 4);
    const CrossEntropy result =
        cross_entropy(logits, formula_labels(name + "/labels", 5, 7), {.smoothing = smoothing});
    backward(result.loss);
    expect_near(result.losses, name + "/losses");
    expect_near(logits.grad(), name + "/dlogits");
    double total = 0;
    for (const double loss : reference().at(name + "/losses").to_vector<double>()) total += loss;
    EXPECT_NEAR(result.loss.value().item(), total, tolerance() * total);
  }
}

INSTANTIATE_TEST_SUITE_P(, OpParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
