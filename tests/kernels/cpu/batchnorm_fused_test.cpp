// Tests that batch norm with a fused residual and ReLU gives the same bits as the separate operations.
#include <cstring>

#include "convoy/kernels/elementwise.h"
#include "tests/kernels/batchnorm_arrays.h"

namespace convoy {
namespace {

using testing::Array;
using testing::Fusion;
using testing::kFusions;
using testing::Norm;

/// Expects the same bits, including NaN and signed zeros.
template <class T>
void expect_identical(const Array<T>& found, const Array<T>& expected, const char* what) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t e = 0; e < found.size(); ++e)
    ASSERT_EQ(std::memcmp(&found[e], &expected[e], sizeof(T)), 0)
        << what << ", element " << e << ": " << testing::value_of(found[e]) << " and "
        << testing::value_of(expected[e]);
}

template <class T>
void expect_fused_as_separate(Norm<T> fused, const Fusion& fusion, GradMode mode) {
  SCOPED_TRACE(fused.x.shape().text() + ", " + fusion.text() +
               (mode == GradMode::accumulate ? ", adding" : ""));
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
  CpuStream stream({.threads = 2});
  Norm<T> separate = fused;
  forward(cpu, fused, fusion);
  backward(cpu, fused, fusion, mode);

  const Fusion plain{.training = fusion.training, .relu = false, .residual = false};
  forward(cpu, separate, plain);
  if (fusion.residual)
    kernels::add(stream, separate.y.view(), separate.residual.view(), separate.y.view(), 1, 1);
  if (fusion.relu) {
    kernels::unary_forward(stream, kernels::UnaryOp::relu, separate.y.view(), separate.y.view());
    kernels::unary_backward(stream, kernels::UnaryOp::relu, separate.dy.view(), separate.y.view(),
                            separate.dy.grad());
  }
  if (fusion.gelu) {
    kernels::unary_backward(stream, kernels::UnaryOp::gelu, separate.dy.view(), separate.y.view(),
                            separate.dy.grad());
    kernels::unary_forward(stream, kernels::UnaryOp::gelu, separate.y.view(), separate.y.view());
  }
  backward(cpu, separate, plain, mode, {true, false, true, true});
  kernels::scale(stream, separate.dy.view(), 1, separate.dresidual.grad(mode));

  expect_identical(fused.y, separate.y, "y");
  expect_identical(fused.mean, separate.mean, "mean");
  expect_identical(fused.inverse_std, separate.inverse_std, "inverse_std");
  expect_identical(fused.running_mean, separate.running_mean, "running_mean");
  expect_identical(fused.running_var, separate.running_var, "running_var");
  expect_identical(fused.dx, separate.dx, "dx");
  expect_identical(fused.dresidual, separate.dresidual, "dresidual");
  expect_identical(fused.dgamma, separate.dgamma, "dgamma");
  expect_identical(fused.dbeta, separate.dbeta, "dbeta");
}

TEST(BatchNormFused, MatchesSeparateOpsBitForBit) {
  // Fewer channels than the lanes of a sum, as many, and more. Rows of one block and of several blocks. More
  // of both than a thread processes at once.
  constexpr std::int64_t kShapes[][2] = {{2, 1}, {3, 3}, {33, 17}, {65, 16}, {2053, 2}, {700, 65}};
  for (const auto& [rows, channels] : kShapes)
    for (const Fusion& fusion : kFusions)
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        expect_fused_as_separate(Norm<float>(rows, channels), fusion, mode);
        expect_fused_as_separate(Norm<double>(rows, channels), fusion, mode);
      }
}

TEST(BatchNormFused, GeluMatchesSeparateOpsBitForBit) {
  constexpr Fusion kGelu{.training = true, .relu = false, .residual = false, .gelu = true};
  constexpr std::int64_t kShapes[][2] = {{2, 1}, {33, 17}, {2053, 2}, {700, 65}};
  for (const auto& [rows, channels] : kShapes)
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      expect_fused_as_separate(Norm<float>(rows, channels), kGelu, mode);
      expect_fused_as_separate(Norm<double>(rows, channels), kGelu, mode);
      expect_fused_as_separate(Norm<bfloat16>(rows, channels), kGelu, mode);
    }
}

TEST(BatchNormFused, PropagatesNan) {
  Norm<float> norm(40, 18);
  norm.x[5] = std::numeric_limits<float>::quiet_NaN();
  norm.residual[100] = std::numeric_limits<float>::quiet_NaN();
  for (const Fusion& fusion : kFusions) expect_fused_as_separate(norm, fusion, GradMode::overwrite);
  forward(Device::cpu(), norm, {.training = true, .relu = true, .residual = true});
  EXPECT_TRUE(std::isnan(norm.y[5]));
  EXPECT_TRUE(std::isnan(norm.y[100]));
}

TEST(BatchNormFused, DoesNotWriteUnwantedGradients) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
  for (const bool training : {true, false}) {
    const Fusion fusion{.training = training, .relu = true, .residual = true};
    Norm<float> before(700, 65);
    forward(cpu, before, fusion);
    Norm<float> all = before;
    backward(cpu, all, fusion, GradMode::overwrite);
    Norm<float> some = before;
    backward(cpu, some, fusion, GradMode::overwrite, {false, true, false, false});
    expect_identical(some.dresidual, all.dresidual, "dresidual alone");
    expect_identical(some.dx, before.dx, "dx unwanted");
    expect_identical(some.dgamma, before.dgamma, "dgamma unwanted");
    some = before;
    backward(cpu, some, fusion, GradMode::overwrite, {true, false, false, false});
    expect_identical(some.dx, all.dx, "dx alone");
    expect_identical(some.dresidual, before.dresidual, "dresidual unwanted");
  }
}

// If x is its own residual, its gradient is the sum of both gradients.
TEST(BatchNormFused, SupportsOneArrayForBothGradients) {
  CpuStream stream({.threads = 2});
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
  const Fusion fusion{.training = true, .relu = true, .residual = true};
  Norm<double> norm(700, 65);
  forward(cpu, norm, fusion);
  Norm<double> separate = norm;
  backward(cpu, separate, fusion, GradMode::overwrite);
  kernels::add(stream, separate.dx.view(), separate.dresidual.view(), separate.dx.view(), 1, 1);
  kernels::batch_norm_backward(
      stream, {.gamma = norm.gamma.view(), .options = {.activation = FusedActivation::relu}},
      {norm.dy.view(), norm.x.view(), norm.y.view()}, {norm.mean.view(), norm.inverse_std.view(), {}},
      {norm.dx.grad(GradMode::overwrite), norm.dx.grad(GradMode::accumulate), norm.dgamma.grad(),
       norm.dbeta.grad()});
  expect_identical(norm.dx, separate.dx, "sum");
}

}  // namespace
}  // namespace convoy
