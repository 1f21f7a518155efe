// An op as a user writes it, with a kernel for the CPU alone, and check_gradients().
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/autograd/check_gradients.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::HasSubstr;

/// softplus(x) = log(1 + exp(x)), for f64. Its gradient is sigmoid(x), scaled by `factor` to plant an error.
Variable softplus(const Variable& x, double factor = 1) {
  wait_ready(x);
  const Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](CpuStream&) {
    for (std::int64_t i = 0; i < y.numel(); ++i)
      y.view().as<double>()[i] = std::log1p(std::exp(x.value().view().as<double>()[i]));
  });
  return record("softplus", y, {x}, [x = x.value(), factor](const Tensor& dy, std::span<GradSlot> dx) {
    const Tensor gradient = Tensor::empty_like(x);
    on(gradient.stream(), [&](CpuStream&) {
      for (std::int64_t i = 0; i < gradient.numel(); ++i)
        gradient.view().as<double>()[i] =
            factor * dy.view().as<double>()[i] / (1 + std::exp(-x.view().as<double>()[i]));
    });
    dx[0].alias_or_accumulate(gradient);
  });
}

TEST(CheckGradients, AcceptsACorrectGradient) {
  check_gradients([](auto x) { return softplus(x[0]); }, {{3, 4}}, {.low = -4, .high = 4});
  check_gradients([](auto x) { return sum(softplus(x[0] * x[1]), {1}); }, {{3, 4}, {4}});
}

TEST(CheckGradients, NamesTheElementThatDiffers) {
  EXPECT_THAT(testing::message_of<NumericError>([] {
                check_gradients([](auto x) { return x[0] * softplus(x[1], 1.01); }, {{2}, {2}});
              }),
              HasSubstr("the gradient of argument 1 [2] at element 0 is "));
}

TEST(CheckGradients, NoticesAMissingGradient) {
  const auto forgets = [](std::span<const Variable> x) { return Variable(x[0].value()) + x[1]; };
  EXPECT_THAT(testing::message_of<UsageError>([&] {
                check_gradients(forgets, {{2}, {2}});
              }),
              HasSubstr("computed no gradient of argument 0"));
}

TEST(CustomOp, RunsOnTheMetaDeviceAndIsComposed) {
  const Variable x(Tensor::empty({2, 3}, DType::f64, Device::meta()));
  EXPECT_EQ(softplus(x).shape(), (Shape{2, 3}));
}

}  // namespace
}  // namespace convoy
