// Compares kernels/batchnorm.h on the GPU with the CPU, which computes in f64 on the widened inputs.
#include "convoy/kernels/batchnorm.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/kernels/batchnorm_shards.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::Fusion;
using testing::kFusions;
using testing::kWantAll;
using testing::Norm;
using testing::Offsets;
using testing::ShardEnds;
using testing::value_of;
using testing::Wanted;

// f32: for these shapes a thread adds at most 8 rows in groups, the tree of a block has at most 8 levels, and
// about 10 roundings follow, each of half an eps. f64: the error of the CPU's sums, over up to 64 blocks of
// rows in order, is added.
template <class T>
constexpr double kTolerance = (std::is_same_v<T, double> ? 64 : 16) *
                              2 * testing::unit_roundoff<ComputeType<T>>();

double at(const Array<double>& matrix, std::int64_t row, std::int64_t c) {
  return matrix[static_cast<std::size_t>(row * matrix.shape()[1] + c)];
}
double of(const Array<double>& vector, std::int64_t c) { return vector[static_cast<std::size_t>(c)]; }

/// Expects equality within `tolerance` times magnitude(row, c), plus one rounding to T.
template <class T, class Magnitude>
void expect_elements(const Array<T>& found, const Array<double>& expected, double tolerance,
                     const Magnitude& magnitude, const char* what) {
  for (std::int64_t row = 0; row < expected.shape()[0]; ++row)
    for (std::int64_t c = 0; c < expected.shape()[1]; ++c) {
      const double wanted = at(expected, row, c);
      const double value = value_of(found[static_cast<std::size_t>(row * expected.shape()[1] + c)]);
      constexpr double kSubnormal = std::is_same_v<T, float16> ? 0x1p-25 : 0;  // half the spacing
      const double error = tolerance * magnitude(row, c) + kSubnormal;
      ASSERT_NEAR(value, wanted, error + testing::unit_roundoff<T>() * (std::abs(wanted) + error))
          << what << " of row " << row << ", channel " << c;
    }
}
template <class C, class Magnitude>
void expect_channels(const Array<C>& found, const Array<double>& expected, double tolerance,
                     const Magnitude& magnitude, const char* what) {
  for (std::int64_t c = 0; c < expected.shape()[0]; ++c)
    ASSERT_NEAR(value_of(found[static_cast<std::size_t>(c)]), of(expected, c), tolerance * magnitude(c))
        << what << " of channel " << c;
}

/// Compares `norm` after the GPU's forward with `exact` after the CPU's forward.
template <class T>
void expect_same_forward(const Norm<T>& norm, const Norm<double>& exact, const Fusion& fusion) {
  std::vector<double> spread(static_cast<std::size_t>(norm.channels()));  // largest |x - mean|
  const Array<double>& mean = fusion.training ? exact.mean : exact.running_mean;
  for (std::int64_t row = 0; row < norm.rows(); ++row)
    for (std::int64_t c = 0; c < norm.channels(); ++c) {
      double& maximum = spread[static_cast<std::size_t>(c)];
      maximum = std::max(maximum, std::abs(at(exact.x, row, c) - of(mean, c)));
    }
  const auto inverse_std = [&](std::int64_t c) {
    return fusion.training ? of(exact.inverse_std, c) : 1 / std::sqrt(of(exact.running_var, c) + 1e-5);
  };
  const auto magnitude = [&](std::int64_t row, std::int64_t c) {
    return std::abs(of(exact.gamma, c)) * inverse_std(c) * spread[static_cast<std::size_t>(c)] +
           std::abs(of(exact.beta, c)) + (fusion.residual ? std::abs(at(exact.residual, row, c)) : 0);
  };
  expect_elements(norm.y, exact.y, kTolerance<T>, magnitude, "y");
  if (!fusion.training) return;
  const auto size_of_mean = [&](std::int64_t c) {
    return spread[static_cast<std::size_t>(c)] + std::abs(of(exact.mean, c));
  };
  expect_channels(norm.mean, exact.mean, kTolerance<T>, size_of_mean, "mean");
  expect_channels(
      norm.inverse_std, exact.inverse_std, kTolerance<T>, [&](auto c) { return of(exact.inverse_std, c); },
      "inverse_std");
  expect_channels(
      norm.running_mean, exact.running_mean, kTolerance<T>, [&](auto c) { return 1 + size_of_mean(c); },
      "running_mean");
  expect_channels(
      norm.running_var, exact.running_var, kTolerance<T>, [&](auto c) { return of(exact.running_var, c); },
      "running_var");
}

/// Compares the gradients of the GPU with those of the CPU, both computed from `before`.
template <class T>
void expect_same_backward(const Norm<T>& found, const Norm<double>& exact, const Norm<double>& before,
                          const Fusion& fusion) {
  const double n = static_cast<double>(before.rows());
  const auto g = [&](std::int64_t row, std::int64_t c) {
    return fusion.relu && at(before.y, row, c) <= 0 ? 0 : std::abs(at(before.dy, row, c));
  };
  const auto inverse_std = [&](std::int64_t c) {
    return fusion.training ? of(before.inverse_std, c) : 1 / std::sqrt(of(before.running_var, c) + 1e-5);
  };
  const auto xh = [&](std::int64_t row, std::int64_t c) {
    return std::abs(at(before.x, row, c) - of(fusion.training ? before.mean : before.running_mean, c)) *
           inverse_std(c);
  };
  Array<double> dgamma(before.gamma.shape()), dbeta(before.beta.shape());  // magnitudes of the summed terms
  for (std::int64_t c = 0; c < before.channels(); ++c)
    for (std::int64_t row = 0; row < before.rows(); ++row) {
      dgamma[static_cast<std::size_t>(c)] += g(row, c) * xh(row, c);
      dbeta[static_cast<std::size_t>(c)] += g(row, c);
    }
  expect_channels(
      found.dgamma, exact.dgamma, kTolerance<T>, [&](auto c) { return of(dgamma, c) + 1; }, "dgamma");
  expect_channels(
      found.dbeta, exact.dbeta, kTolerance<T>, [&](auto c) { return of(dbeta, c) + 1; }, "dbeta");
  const auto size_of_dx = [&](std::int64_t row, std::int64_t c) {
    const double through_statistics = (of(dbeta, c) + xh(row, c) * of(dgamma, c)) / n;
    return std::abs(of(before.gamma, c)) * inverse_std(c) *
               (g(row, c) + (fusion.training ? through_statistics : 0)) +
           std::abs(at(before.dx, row, c));
  };
  expect_elements(found.dx, exact.dx, kTolerance<T>, size_of_dx, "dx");
  const auto size_of_dresidual = [&](std::int64_t row, std::int64_t c) {
    return g(row, c) + std::abs(at(before.dresidual, row, c));
  };
  expect_elements(found.dresidual, exact.dresidual, kTolerance<T>, size_of_dresidual, "dresidual");
}

template <class T>
class CudaBatchNorm : public testing::GpuTest {
 protected:
  const DeviceContext cpu_ = DeviceContext::create_cpu({.threads = 1});

  void check(Norm<T> norm, const Fusion& fusion, const Offsets& at = {}) const {
    SCOPED_TRACE(norm.x.shape().text() + " " + std::string(to_string(dtype_of<T>)) + ", " + fusion.text());
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    Norm<double> exact = norm.widened();
    forward(cpu_, exact, fusion);
    forward(gpu, norm, fusion, at);
    expect_same_forward(norm, exact, fusion);
    for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
      const Norm<double> before = norm.widened();
      Norm<double> expected = before;
      Norm<T> found = norm;
      backward(cpu_, expected, fusion, mode);
      backward(gpu, found, fusion, mode, kWantAll, at);
      expect_same_backward(found, expected, before, fusion);
      if (::testing::Test::HasFailure()) return;
    }
  }

  /// Compares the GPU's result on shards with the CPU's result on the whole batch.
  void check_parts(Norm<T> norm, const Fusion& fusion, GradMode mode, const ShardEnds& ends) const {
    SCOPED_TRACE(norm.x.shape().text() + " " + std::string(to_string(dtype_of<T>)) + ", " + fusion.text());
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    Norm<double> exact = norm.widened();
    forward(cpu_, exact, fusion);
    forward_in_shards(gpu, norm, fusion, ends);
    expect_same_forward(norm, exact, fusion);
    const Norm<double> before = norm.widened();
    Norm<double> expected = before;
    backward(cpu_, expected, fusion, mode);
    backward_in_shards(gpu, norm, fusion, mode, ends);
    expect_same_backward(norm, expected, before, fusion);
  }
};
using CudaBatchNormTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaBatchNorm, CudaBatchNormTypes);

// Channels that come in packs for all types, for some, and for none; one tile of channels, less than one, and
// several; rows that end within a thread's group, within a block, and after one block.
constexpr std::int64_t kShapes[][2] = {{2, 1},   {33, 1},   {257, 3},  {31, 32},  {255, 33}, {2, 257},
                                       {65, 12}, {33, 136}, {1025, 8}, {520, 16}, {70, 264}};

TYPED_TEST(CudaBatchNorm, EqualsTheCpu) {
  std::size_t turn = 0;  // selects two fusions per shape: one for training, one for inference
  for (const auto& [rows, channels] : kShapes) {
    this->check(Norm<TypeParam>(rows, channels), kFusions[turn % 4]);
    this->check(Norm<TypeParam>(rows, channels), kFusions[4 + (turn + 1) % 4]);
    ++turn;
  }
}

TYPED_TEST(CudaBatchNorm, OfShardsEqualsTheCpu) {
  std::size_t turn = 0;
  for (const auto& [rows, channels] : kShapes) {
    const ShardEnds ends =
        turn % 2 == 0 ? ShardEnds{0, rows / 3, rows / 3, rows} : ShardEnds{rows - 1, rows, rows};
    this->check_parts(Norm<TypeParam>(rows, channels), kFusions[turn % 4],
                      turn % 3 == 0 ? GradMode::accumulate : GradMode::overwrite, ends);
    ++turn;
  }
}

TYPED_TEST(CudaBatchNorm, OfShardsWithFewerThanTwoRows) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Fusion fusion{.training = true, .relu = false, .residual = false};
  for (const std::int64_t rows : {0, 1})
    for (const std::int64_t channels : {0, 5, 16}) {
      Norm<TypeParam> norm(rows, channels);
      const Norm<TypeParam> before = norm;
      forward_in_shards(gpu, norm, fusion, {0, rows});
      expect_same_bits(norm.running_mean, before.running_mean);
      expect_same_bits(norm.running_var, before.running_var);
      backward_in_shards(gpu, norm, fusion, GradMode::overwrite, {0, rows});
      testing::expect_near(norm.dgamma, Array<double>({channels}), 0);
    }
}

// A single unaligned array must disable packs.
TYPED_TEST(CudaBatchNorm, SupportsUnalignedViews) {
  for (const auto array :
       {&Offsets::x, &Offsets::residual, &Offsets::dy, &Offsets::y, &Offsets::dx, &Offsets::dresidual,
        &Offsets::gamma, &Offsets::beta, &Offsets::mean, &Offsets::inverse_std, &Offsets::coefficients,
        &Offsets::running_mean, &Offsets::running_var, &Offsets::dgamma, &Offsets::dbeta}) {
    Offsets at;
    at.*array = 1;
    for (const bool training : {true, false})
      for (const bool residual : {true, false})
        this->check(Norm<TypeParam>(33, 16), {.training = training, .relu = true, .residual = residual}, at);
  }
}

TYPED_TEST(CudaBatchNorm, GivesSameBitsInEveryThreadOrder) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Fusion fusion{.training = true, .relu = true, .residual = true};
  for (const auto& [rows, channels] : {std::pair{1300, 16}, std::pair{300, 33}}) {
    testing::Repeats<TypeParam> y, dx;
    testing::Repeats<ComputeType<TypeParam>> running_var, dgamma, dbeta;
    this->for_each_order([&, rows = rows, channels = channels] {
      Norm<TypeParam> norm(rows, channels);
      forward(gpu, norm, fusion);
      backward(gpu, norm, fusion, GradMode::overwrite);
      y.expect_same(norm.y);
      running_var.expect_same(norm.running_var);
      dx.expect_same(norm.dx);
      dgamma.expect_same(norm.dgamma);
      dbeta.expect_same(norm.dbeta);
    });
  }
}

TYPED_TEST(CudaBatchNorm, DoesNotWriteUnwantedGradients) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const Fusion& fusion : kFusions) {
    SCOPED_TRACE(fusion.text());
    Norm<TypeParam> before(65, 16);
    forward(gpu, before, fusion);
    Norm<TypeParam> all = before;
    backward(gpu, all, fusion, GradMode::accumulate);
    for (const Wanted& wanted : {Wanted{true, false, false, false}, Wanted{false, true, false, false},
                                 Wanted{false, false, true, false}, Wanted{false, false, false, true},
                                 Wanted{false, false, false, false}}) {
      Norm<TypeParam> some = before;
      backward(gpu, some, fusion, GradMode::accumulate, wanted);
      expect_same_bits(some.dx, wanted[0] ? all.dx : before.dx);
      expect_same_bits(some.dresidual, wanted[1] ? all.dresidual : before.dresidual);
      expect_same_bits(some.dgamma, wanted[2] ? all.dgamma : before.dgamma);
      expect_same_bits(some.dbeta, wanted[3] ? all.dbeta : before.dbeta);
    }
  }
}

// If x is its own residual, dx must be stored before the sum with dresidual is read.
TYPED_TEST(CudaBatchNorm, SupportsOneArrayForBothGradients) {
  using T = TypeParam;
  using C = ComputeType<T>;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Fusion fusion{.training = true, .relu = true, .residual = true};
  for (const std::int64_t channels : {16, 5}) {
    Norm<T> norm(65, channels);
    forward(gpu, norm, fusion);
    Norm<T> apart = norm;
    backward(gpu, apart, fusion, GradMode::overwrite);
    const DeviceArray<T> dy(gpu, norm.dy), x(gpu, norm.x), y(gpu, norm.y), together(gpu, norm.dx);
    const DeviceArray<C> gamma(gpu, norm.gamma), mean(gpu, norm.mean), inverse_std(gpu, norm.inverse_std);
    on(gpu.stream(), [&](auto& s) {
      kernels::batch_norm_backward(
          s, {.gamma = gamma.view(), .options = {.activation = FusedActivation::relu}},
          {dy.view(), x.view(), y.view()}, {mean.view(), inverse_std.view(), {}},
          {.x = together.grad(GradMode::overwrite), .residual = together.grad(GradMode::accumulate)});
    });
    Array<C> sum(norm.x.shape());
    for (std::size_t e = 0; e < sum.size(); ++e)
      sum[e] = static_cast<C>(apart.dx[e]) + static_cast<C>(apart.dresidual[e]);
    testing::expect_rounded(together.values(), sum);
  }
}

TYPED_TEST(CudaBatchNorm, PropagatesNan) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto nan = static_cast<TypeParam>(std::numeric_limits<float>::quiet_NaN());
  for (const std::int64_t channels : {8, 3}) {
    Norm<TypeParam> norm(40, channels);
    norm.x[static_cast<std::size_t>(channels + 1)] = nan;             // row 1, channel 1
    norm.residual[static_cast<std::size_t>(5 * channels + 2)] = nan;  // row 5, channel 2
    forward(gpu, norm, {.training = true, .relu = true, .residual = true});
    for (std::size_t e = 0; e < norm.y.size(); ++e) {
      const std::size_t c = e % static_cast<std::size_t>(channels);
      const bool expected = c == 1 || e == static_cast<std::size_t>(5 * channels + 2);
      ASSERT_EQ(std::isnan(value_of(norm.y[e])), expected) << e;
    }
    EXPECT_TRUE(std::isnan(norm.running_var[1]));
  }
}

TYPED_TEST(CudaBatchNorm, AcceptsEmptyBatch) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const Fusion& fusion : kFusions) {
    for (const std::int64_t channels : {0, 5, 16}) {
      const Norm<TypeParam> before(0, channels);
      Norm<TypeParam> norm = before;
      forward(gpu, norm, fusion);
      expect_same_bits(norm.running_mean, before.running_mean);
      expect_same_bits(norm.running_var, before.running_var);
      backward(gpu, norm, fusion, GradMode::accumulate);
      expect_same_bits(norm.dgamma, before.dgamma);
      backward(gpu, norm, fusion, GradMode::overwrite);
      testing::expect_near(norm.dgamma, Array<double>({channels}), 0);
      testing::expect_near(norm.dbeta, Array<double>({channels}), 0);
    }
    Norm<TypeParam> no_channels(3, 0);
    forward(gpu, no_channels, fusion);
    backward(gpu, no_channels, fusion, GradMode::overwrite);
  }
}

class CudaBatchNormOfFloats : public CudaBatchNorm<float> {};

// The mean is 1e4 and the standard deviation is 1, for which f32 has 10 fractional bits. The statistics and y
// must be accurate to a few ulp of the deviation, without a term for the mean. Only values as large as the
// mean may be rounded accordingly.
TEST_F(CudaBatchNormOfFloats, LargeMeanDoesNotCancel) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const auto& [rows, channels] : {std::pair{1300, 16}, std::pair{300, 33}, std::pair{3000, 1}}) {
    SCOPED_TRACE(Shape({rows, channels}).text());
    Norm<float> norm(rows, channels);
    constexpr float kUniformTo1 = 1.7320508F;  // sqrt(3): scales a uniform number in [-1, 1) to deviation 1
    for (float& x : norm.x) x = 1e4F + kUniformTo1 * x;
    std::fill(norm.running_mean.begin(), norm.running_mean.end(), 0.0F);
    Norm<double> exact = norm.widened();
    const Fusion fusion{.training = true, .relu = false, .residual = false};
    forward(cpu_, exact, fusion);
    forward(gpu, norm, fusion);
    expect_channels(
        norm.mean, exact.mean, 1, [](auto) { return 0x1p-24 * 16384; }, "mean");
    constexpr double kUlps = 8 * 0x1p-23;
    expect_channels(
        norm.inverse_std, exact.inverse_std, kUlps, [](auto) { return 1; }, "inverse_std");
    expect_channels(
        norm.running_var, exact.running_var, kUlps, [](auto) { return 2; }, "running_var");
    expect_elements(
        norm.y, exact.y, kUlps, [](auto, auto) { return kUniformTo1 + 1; }, "y");
  }
}

// More partial sums per channel than threads that add them.
TEST_F(CudaBatchNormOfFloats, ManyBlocksOfRows) {
  check(Norm<float>(2130, 31), {.training = true, .relu = true, .residual = true});
}

// So many tiles of channels that there is only one block of rows: a block takes more rows.
TEST_F(CudaBatchNormOfFloats, ManyTilesOfChannels) {
  const Fusion fusion{.training = true, .relu = false, .residual = false};
  Norm<float> norm(260, 4097);
  Norm<double> exact = norm.widened();
  forward(cpu_, exact, fusion);
  forward(DeviceContext::create_cuda(0), norm, fusion);
  expect_same_forward(norm, exact, fusion);
}

}  // namespace
}  // namespace convoy
