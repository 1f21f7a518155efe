// Tests that the sync_batch_norm functions on shards of a batch equal batch norm on the whole batch.
#include "tests/kernels/batchnorm_shards.h"

namespace convoy {
namespace {

using testing::Array;
using testing::expect_near;
using testing::Fusion;
using testing::kFusions;
using testing::Norm;
using testing::ShardEnds;

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
