// Tests of batch norm on the CPU: fused activations and residuals, shards, threads and large means. The op cases test
// the values.
#include <malloc.h>

#include <cstring>

#include "convoy/kernels/elementwise.h"
#include "tests/kernels/batchnorm_arrays.h"

namespace convoy {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;
using testing::Fusion;
using testing::kFusions;
using testing::kPlainNorm;
using testing::Norm;
using testing::ShardEnds;

TEST(BatchNorm, LargeMeanDoesNotCancel) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
  for (const std::int64_t rows : {2, 33, 2053}) {
    Norm<float> norm(rows, 17);
    for (float& x : norm.x) x += 1e4F;
    Norm<double> exact = norm.widened();
    forward(cpu, norm, kPlainNorm);
    forward(cpu, exact, kPlainNorm);
    const double eps = 8 * testing::kEps;  // a few roundings of numbers of the size of the deviation
    for (std::size_t c = 0; c < norm.mean.size(); ++c)
      EXPECT_NEAR(norm.inverse_std[c], exact.inverse_std[c], eps * exact.inverse_std[c]);
    for (std::size_t e = 0; e < norm.y.size(); ++e)
      ASSERT_NEAR(norm.y[e], exact.y[e], eps * (1 + std::abs(exact.y[e])));
  }
}

TEST(BatchNorm, BitsDoNotDependOnThreads) {
  Norm<float> a(3001, 19), b = a;
  for (const auto& [norm, threads] : {std::pair{&a, 1}, {&b, 3}}) {
    const DeviceContext cpu = DeviceContext::create_cpu({.threads = threads});
    forward(cpu, *norm, kPlainNorm);
    backward(cpu, *norm, kPlainNorm, GradMode::overwrite);
  }
  expect_same_bits(a.y, b.y);
  expect_same_bits(a.running_var, b.running_var);
  expect_same_bits(a.dx, b.dx);
  expect_same_bits(a.dgamma, b.dgamma);
  expect_same_bits(a.dbeta, b.dbeta);
}

TEST(BatchNorm, EmptyBatchKeepsRunningStatisticsAndAddsNothing) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
  Norm<float> norm(0, 5);
  const Norm<float> before = norm;
  forward(cpu, norm, kPlainNorm);
  expect_same_bits(norm.running_mean, before.running_mean);
  expect_same_bits(norm.running_var, before.running_var);
  backward(cpu, norm, kPlainNorm, GradMode::accumulate);
  expect_same_bits(norm.dgamma, before.dgamma);
}

TEST(BatchNorm, SteadyStateAllocatesNoMemory) {
  CpuStream stream({.threads = 1});
  Norm<float> norm(1024, 32);
  const kernels::BatchNorm layer{
      norm.gamma.view(), norm.beta.view(), norm.running_mean.view(), norm.running_var.view(), {}};
  const kernels::SavedStatistics saved{norm.mean.view(), norm.inverse_std.view(), norm.coefficients.view()};
  const auto step = [&] {
    kernels::batch_norm_forward(stream, layer, norm.x.view(), {}, saved, norm.y.view());
    kernels::batch_norm_backward(
        stream, layer, {norm.dy.view(), norm.x.view(), norm.y.view()}, saved,
        {.x = norm.dx.grad(), .gamma = norm.dgamma.grad(), .beta = norm.dbeta.grad()});
  };
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  for (int i = 0; i < 3; ++i) step();
  const std::size_t before = in_use();
  for (int i = 0; i < 50; ++i) step();
  EXPECT_LE(in_use(), before);
}

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

// The error of sums of about 1000 terms of size 1 in a different order, times an inverse deviation of about
// 2.
constexpr double kTolerance = 1e-12;

TEST(SyncBatchNorm, MatchWholeBatch) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 2});
  for (const ShardEnds& ends : {ShardEnds{700}, {233, 466, 700}, {0, 1, 300, 300, 700}, {699, 700, 700}})
    for (const std::int64_t channels : {1, 17})
      for (const Fusion& fusion : kFusions)
        for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
          if (!fusion.training) continue;
          SCOPED_TRACE(fusion.text() + ", " + std::to_string(ends.size()) + " shards");
          Norm<double> whole(700, channels);
          for (double& x : whole.x) x += 1000;  // a large mean must not cause cancellation
          Norm<double> parts = whole;
          forward(cpu, whole, fusion);
          forward_in_shards(cpu, parts, fusion, ends);
          constexpr double kOfTheMean = 1000 * kTolerance;
          expect_near(parts.mean, whole.mean, kOfTheMean);
          expect_near(parts.inverse_std, whole.inverse_std, kTolerance);
          expect_near(parts.y, whole.y, kOfTheMean);
          expect_near(parts.running_mean, whole.running_mean, kOfTheMean);
          expect_near(parts.running_var, whole.running_var, kTolerance);
          parts = whole;
          backward(cpu, whole, fusion, mode);
          backward_in_shards(cpu, parts, fusion, mode, ends);
          expect_near(parts.dx, whole.dx, kTolerance);
          expect_near(parts.dresidual, whole.dresidual, 0);
          expect_near(parts.dgamma, whole.dgamma, 700 * kTolerance);
          expect_near(parts.dbeta, whole.dbeta, 700 * kTolerance);
          if (HasFailure()) return;
        }
}

// The unbiased variance of the running statistics divides by n - 1, so it is undefined for fewer than two
// rows.
TEST(SyncBatchNorm, DoNotUpdateRunningStatisticsBelowTwoRows) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
  const Fusion fusion{.training = true, .relu = false, .residual = false};
  for (const std::int64_t rows : {0, 1}) {
    Norm<double> norm(rows, 5);
    const Norm<double> before = norm;
    forward_in_shards(cpu, norm, fusion, {0, rows, rows});
    expect_near(norm.running_mean, before.running_mean, 0);
    expect_near(norm.running_var, before.running_var, 0);
    for (std::size_t e = 0; e < norm.y.size(); ++e) EXPECT_DOUBLE_EQ(norm.y[e], norm.beta[e]);
    backward_in_shards(cpu, norm, fusion, GradMode::overwrite, {0, rows, rows});
    expect_near(norm.dgamma, Array<double>({5}), 0);
    expect_near(norm.dx, Array<double>({rows, 5}), 1e-9);  // relative to 1 / sqrt(epsilon), which is 316
  }
}

TEST(SyncBatchNorm, PropagatesNan) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
  Norm<float> norm(40, 3);
  norm.x[4] = std::numeric_limits<float>::quiet_NaN();  // row 1, channel 1
  forward_in_shards(cpu, norm, {.training = true, .relu = true, .residual = false}, {10, 40});
  for (std::size_t e = 0; e < norm.y.size(); ++e) ASSERT_EQ(std::isnan(norm.y[e]), e % 3 == 1) << e;
  EXPECT_TRUE(std::isnan(norm.running_var[1]));
}

}  // namespace
}  // namespace convoy
