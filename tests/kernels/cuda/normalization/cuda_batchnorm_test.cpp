// Tests of kernels/batchnorm.h on the GPU: shards, addresses, unwanted gradients, NaN and large means. The op cases test
// the values.
#include "convoy/kernels/batchnorm.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/normal_quotient.h"
#include "tests/kernels/batchnorm_arrays.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;
using testing::expect_same_bits;
using testing::Fusion;
using testing::kFusions;
using testing::kPlainNorm;
using testing::kWantAll;
using testing::Norm;
using testing::Offsets;
using testing::ShardEnds;
using testing::value_of;
using testing::Wanted;

template <class T>
class CudaBatchNorm : public testing::GpuTest {};
using CudaBatchNormTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaBatchNorm, CudaBatchNormTypes);

// Shards of some rows, of one row, and of none. The op cases test the values of a whole batch, in every type.
TYPED_TEST(CudaBatchNorm, OfShardsEqualsTheBatch) {
  using T = TypeParam;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const double tolerance = 64 * testing::unit_roundoff<ComputeType<T>>();
  std::size_t turn = 0;
  for (const auto& [rows, channels] : {std::pair{33, 1}, {257, 3}, {65, 12}, {1025, 8}, {70, 264}}) {
    const Fusion& fusion = kFusions[turn % 4];
    const GradMode mode = turn % 3 == 0 ? GradMode::accumulate : GradMode::overwrite;
    const ShardEnds ends =
        turn++ % 2 == 0 ? ShardEnds{0, rows / 3, rows / 3, rows} : ShardEnds{rows - 1, rows, rows};
    SCOPED_TRACE(::testing::Message() << rows << " x " << channels << ", " << fusion.text());
    Norm<T> whole(rows, channels), shards = whole;
    forward(gpu, whole, fusion);
    forward_in_shards(gpu, shards, fusion, ends);
    testing::expect_near(shards.mean, whole.mean, tolerance);
    testing::expect_near(shards.running_var, whole.running_var, tolerance);
    testing::expect_near(shards.y, whole.y, 8 * (tolerance + testing::unit_roundoff<T>()));
    shards = whole;
    backward(gpu, whole, fusion, mode);
    backward_in_shards(gpu, shards, fusion, mode, ends);
    testing::expect_near(shards.dx, whole.dx, 8 * (tolerance + testing::unit_roundoff<T>()));
    testing::expect_near(shards.dresidual, whole.dresidual, 0);
    testing::expect_near(shards.dgamma, whole.dgamma, tolerance * rows);
    testing::expect_near(shards.dbeta, whole.dbeta, tolerance * rows);
  }
}

TYPED_TEST(CudaBatchNorm, OfShardsWithFewerThanTwoRows) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Fusion& fusion = kPlainNorm;
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

// A single unaligned array disables packs, which changes no bits.
TYPED_TEST(CudaBatchNorm, SupportsUnalignedViews) {
  for (const char* const clusters : {"0", "16"}) {
    SCOPED_TRACE(clusters);
    const testing::ScopedClusters scope(clusters);
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    for (const bool training : {true, false})
      for (const bool residual : {true, false}) {
        const Fusion fusion{.training = training, .relu = true, .residual = residual};
        Norm<TypeParam> aligned(33, 16);
        const Norm<TypeParam> before = aligned;
        forward(gpu, aligned, fusion);
        backward(gpu, aligned, fusion, GradMode::accumulate);
        for (const auto array :
             {&Offsets::x, &Offsets::residual, &Offsets::dy, &Offsets::y, &Offsets::dx, &Offsets::dresidual,
              &Offsets::gamma, &Offsets::beta, &Offsets::mean, &Offsets::inverse_std, &Offsets::coefficients,
              &Offsets::running_mean, &Offsets::running_var, &Offsets::dgamma, &Offsets::dbeta}) {
          Offsets at;
          at.*array = 1;
          Norm<TypeParam> norm = before;
          forward(gpu, norm, fusion, at);
          backward(gpu, norm, fusion, GradMode::accumulate, kWantAll, at);
          expect_same_bits(norm.y, aligned.y);
          expect_same_bits(norm.running_var, aligned.running_var);
          expect_same_bits(norm.dx, aligned.dx);
          expect_same_bits(norm.dresidual, aligned.dresidual);
          expect_same_bits(norm.dgamma, aligned.dgamma);
          expect_same_bits(norm.dbeta, aligned.dbeta);
        }
      }
  }
}

TYPED_TEST(CudaBatchNorm, DoesNotWriteUnwantedGradients) {
  for (const char* const clusters : {"0", "16"}) {
    SCOPED_TRACE(clusters);
    const testing::ScopedClusters scope(clusters);
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
}

// If x is its own residual, dx must be stored before the sum with dresidual is read.
TYPED_TEST(CudaBatchNorm, SupportsOneArrayForBothGradients) {
  for (const char* const clusters : {"0", "16"}) {
    SCOPED_TRACE(clusters);
    const testing::ScopedClusters scope(clusters);
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
}

TYPED_TEST(CudaBatchNorm, PropagatesNan) {
  for (const char* const clusters : {"0", "16"}) {
    SCOPED_TRACE(clusters);
    const testing::ScopedClusters scope(clusters);
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

// The mean is 1e4 and the standard deviation is 1, for which f32 has 10 fractional bits. The statistics and y
// must be accurate to a few ulp of the deviation, without a term for the mean. Only values as large as the
// mean may be rounded accordingly.
using CudaBatchNormOfFloats = CudaBatchNorm<float>;
TEST_F(CudaBatchNormOfFloats, LargeMeanDoesNotCancel) {
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1}), gpu = DeviceContext::create_cuda(0);
  // The last has so many tiles of channels that there is only one block of rows, which takes more rows.
  for (const auto& [rows, channels] : {std::pair{1300, 16}, {300, 33}, {3000, 1}, {260, 4097}}) {
    SCOPED_TRACE(Shape({rows, channels}).text());
    Norm<float> norm(rows, channels);
    constexpr float kUniformTo1 = 1.7320508F;  // sqrt(3): scales a uniform number in [-1, 1) to deviation 1
    for (float& x : norm.x) x = 1e4F + kUniformTo1 * x;
    std::fill(norm.running_mean.begin(), norm.running_mean.end(), 0.0F);
    Norm<double> exact = norm.widened();
    forward(cpu, exact, kPlainNorm);
    forward(gpu, norm, kPlainNorm);
    constexpr double kUlps = 8 * 0x1p-23;
    testing::expect_near(norm.mean, exact.mean, 0x1p-24 * 16384);
    testing::expect_near(norm.inverse_std, exact.inverse_std, kUlps);
    testing::expect_near(norm.running_var, exact.running_var, 2 * kUlps);
    testing::expect_near(norm.y, exact.y, (kUniformTo1 + 1) * kUlps);
  }
}

// Tests of the mask of batch norm's ReLU on the GPU: whether it is read from y, recomputed from x, or stored
// as a masked gradient, the gradients have the same bits.

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

/// Arrays in which the sign of y is hard to tell: values that cancel or underflow, zeros of both signs, a
/// channel of zeros, and gradients of NaN, infinity and -0.
template <class T>
Norm<T> with_special_values(std::int64_t rows, std::int64_t channels) {
  using C = ComputeType<T>;
  Norm<T> norm(rows, channels);
  const auto c = [&](std::int64_t channel) { return static_cast<std::size_t>(channel % channels); };
  norm.gamma[c(0)] = C{0};
  norm.beta[c(0)] = C{0};
  norm.gamma[c(1)] = static_cast<C>(1e-7);  // y underflows in f16
  norm.beta[c(1)] = C{0};
  norm.gamma[c(2)] = C{-0.0};
  norm.beta[c(2)] = C{-0.0};
  for (std::int64_t row = 0; row < rows; ++row) {
    const auto e = static_cast<std::size_t>(row * channels);
    norm.x[e + c(3)] = static_cast<T>(row % 2 == 0 ? 1 : -1);
    if (row % 3 == 0) norm.x[e + c(4)] = T{};
    if (row % 7 == 0) norm.dy[e + c(row)] = static_cast<T>(-0.0F);
  }
  // Half of the values are below 0 by about one rounding, since x is +-1 and the mean is about 0.
  norm.gamma[c(3)] = C{1};
  norm.beta[c(3)] = C{1};
  norm.dy[norm.dy.size() - 1] = static_cast<T>(kNan);
  norm.dy[norm.dy.size() / 2] = static_cast<T>(std::numeric_limits<float>::infinity());
  return norm;
}

/// Expects equal bits, which tells -0 from 0. All NaN are equal.
template <class T>
void expect_identical(const Array<T>& a, const Array<T>& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (std::size_t e = 0; e < a.size(); ++e)
    if (!std::isnan(testing::value_of(a[e])) || !std::isnan(testing::value_of(b[e]))) {
      ASSERT_EQ(std::memcmp(&a[e], &b[e], sizeof(T)), 0) << "element " << e;
    }
}

template <class T>
void expect_same_gradients(const Norm<T>& a, const Norm<T>& b) {
  expect_identical(a.dx, b.dx);
  expect_identical(a.dgamma, b.dgamma);
  expect_identical(a.dbeta, b.dbeta);
}

template <class T>
class CudaBatchNormMask : public testing::GpuTest {};
using CudaBatchNormMaskTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaBatchNormMask, CudaBatchNormMaskTypes);

// Packs and single elements; several tiles and blocks of rows.
constexpr std::int64_t kMaskShapes[][2] = {{700, 16}, {33, 5}, {300, 72}};

TYPED_TEST(CudaBatchNormMask, RecomputedIsTheOneOfY) {
  for (const char* const clusters : {"0", "16"}) {
    SCOPED_TRACE(clusters);
    const testing::ScopedClusters scope(clusters);
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const Fusion fusion{.training = true, .relu = true, .residual = false};
    for (const auto& [rows, channels] : kMaskShapes) {
      for (const bool has_nan : {false, true}) {
        Norm<TypeParam> norm = with_special_values<TypeParam>(rows, channels);
        if (has_nan) norm.x[static_cast<std::size_t>(channels)] = static_cast<TypeParam>(kNan);
        forward(gpu, norm, fusion);
        for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
          Norm<TypeParam> read = norm, recomputed = norm;
          backward(gpu, read, fusion, mode, kWantAll, {}, /*reads_y=*/true);
          std::fill(recomputed.y.begin(), recomputed.y.end(),
                    static_cast<TypeParam>(kNan));  // must not be read
          Norm<TypeParam> unaligned = recomputed;
          backward(gpu, recomputed, fusion, mode);
          expect_same_gradients(recomputed, read);
          backward(gpu, unaligned, fusion, mode, kWantAll, Offsets{.coefficients = 1});
          expect_same_gradients(unaligned, read);
        }
      }
    }
  }
}

TYPED_TEST(CudaBatchNormMask, RecomputedForShardsIsTheOneOfY) {
  const testing::ScopedClusters scope("0");  // which add in another order
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const Fusion fusion{.training = true, .relu = true, .residual = false};
  for (const auto& [rows, channels] : kMaskShapes) {
    Norm<TypeParam> read = with_special_values<TypeParam>(rows, channels);
    forward_in_shards(gpu, read, fusion, {rows});
    Norm<TypeParam> recomputed = read;
    backward(gpu, read, fusion, GradMode::overwrite, kWantAll, {}, /*reads_y=*/true);
    std::fill(recomputed.y.begin(), recomputed.y.end(), static_cast<TypeParam>(kNan));
    backward_in_shards(gpu, recomputed, fusion, GradMode::overwrite, {rows});
    expect_same_gradients(recomputed, read);
  }
}

// A gradient that overwrites is stored by the first pass, and one that adds by the second. Sums with 0 have
// no -0, so their values are compared.
TYPED_TEST(CudaBatchNormMask, MaskedGradientIsStoredOnce) {
  for (const char* const clusters : {"0", "16"}) {
    SCOPED_TRACE(clusters);
    const testing::ScopedClusters scope(clusters);
    using T = TypeParam;
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    for (const bool training : {true, false}) {
      const Fusion fusion{.training = training, .relu = true, .residual = true};
      for (const auto& [rows, channels] : kMaskShapes) {
        Norm<T> norm = with_special_values<T>(rows, channels);
        forward(gpu, norm, fusion);
        norm.dx = norm.dresidual = Array<T>(norm.x.shape(), T{});
        norm.dgamma = norm.dbeta = Array<ComputeType<T>>({channels}, 0);
        Norm<T> stored = norm, added = norm, none = norm, unaligned = norm;
        backward(gpu, stored, fusion, GradMode::overwrite);
        Array<T> masked = norm.dy;
        for (std::size_t e = 0; e < masked.size(); ++e)
          if (!(testing::value_of(norm.y[e]) > 0)) masked[e] = T{};
        expect_identical(stored.dresidual, masked);
        backward(gpu, none, fusion, GradMode::overwrite, {true, false, true, true});
        expect_same_gradients(stored, none);
        backward(gpu, unaligned, fusion, GradMode::overwrite, kWantAll, Offsets{.dresidual = 1});
        expect_same_gradients(unaligned, none);
        expect_identical(unaligned.dresidual, stored.dresidual);
        backward(gpu, added, fusion, GradMode::accumulate);
        testing::expect_same_bits(added.dx, stored.dx);
        testing::expect_same_bits(added.dresidual, stored.dresidual);
      }
    }
  }
}

// Tests that a batch norm with a fused GELU computes on a GPU what separate kernels compute.

constexpr Fusion kGelu{.training = true, .relu = false, .residual = false, .gelu = true};

TEST(NormalQuotient, HasTheErrorsThatItStates) {
  for (const bool is_short : {false, true}) {
    double largest = 0;
    for (int i = 0; i <= 14500; ++i) {
      const float size = static_cast<float>(i) * 1e-3F;
      const kernels::NormalQuotient found =
          is_short ? kernels::short_normal_quotient(size) : kernels::normal_quotient(size);
      const double exact = 0.5 * std::erfc(size * std::numbers::sqrt2 / 2) * std::exp(0.5 * size * size);
      largest = std::max(largest, std::abs(double{found.above} / double{found.below} / exact - 1));
    }
    // Rounding adds at most half a unit in the last place for each of nine operations.
    EXPECT_LE(largest, is_short ? 0x1.1p-15 : 0x1p-27 + 9 * 0x1p-24);
    EXPECT_GE(largest, is_short ? 0x1p-16 : 0.0);
  }
}

/// Runs batch norm, and then the kernels of a GELU, in `norm`.
template <class T>
void run_separately(const DeviceContext& gpu, Norm<T>& norm, GradMode mode) {
  forward(gpu, norm, kPlainNorm);
  const DeviceArray<T> u(gpu, norm.y), dy(gpu, norm.dy);
  on(gpu.stream(), [&](auto& s) {
    kernels::unary_backward(s, kernels::UnaryOp::gelu, dy.view(), u.view(), dy.grad());
    kernels::unary_forward(s, kernels::UnaryOp::gelu, u.view(), u.view());
  });
  Norm<T> masked = norm;
  masked.dy = dy.values();
  backward(gpu, masked, kPlainNorm, mode, {true, false, true, true});
  norm.y = u.values();
  norm.dx = masked.dx, norm.dgamma = masked.dgamma, norm.dbeta = masked.dbeta;
}

/// The largest difference, in values and sums of the size of 1: nvcc may contract products and sums of the two
/// kernels in other ways, which can also change how a result is rounded to T.
template <class T>
constexpr double kGeluTolerance = 64 * std::numeric_limits<T>::epsilon();
template <>
constexpr double kGeluTolerance<float16> = 0x1p-8;
template <>
constexpr double kGeluTolerance<bfloat16> = 0x1p-5;

template <class U>
void expect_alike(const Array<U>& found, const Array<U>& expected, double tolerance, const char* what) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t e = 0; e < found.size(); ++e)
    ASSERT_NEAR(static_cast<double>(testing::value_of(found[e])),
                static_cast<double>(testing::value_of(expected[e])), tolerance)
        << what << ", element " << e;
}

template <class T>
class CudaBatchNormGelu : public testing::GpuTest {};
using CudaBatchNormGeluTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CudaBatchNormGelu, CudaBatchNormGeluTypes);

// Packs and single elements; several tiles and blocks of rows.
constexpr std::int64_t kGeluShapes[][2] = {{700, 16}, {33, 5}, {300, 72}};

TYPED_TEST(CudaBatchNormGelu, IsThatOfSeparateKernels) {
  for (const char* const clusters : {"0", "16"}) {
    SCOPED_TRACE(clusters);
    const testing::ScopedClusters scope(clusters);
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    for (const auto& [rows, channels] : kGeluShapes)
      for (const GradMode mode : {GradMode::overwrite, GradMode::accumulate}) {
        SCOPED_TRACE(::testing::Message() << rows << " rows, " << channels << " channels");
        Norm<TypeParam> separate(rows, channels), fused = separate;
        run_separately(gpu, separate, mode);
        forward(gpu, fused, kGelu);
        Norm<TypeParam> unaligned = fused;
        std::fill(fused.y.begin(), fused.y.end(), TypeParam{});  // must not be read
        backward(gpu, fused, kGelu, mode, {true, false, true, true});
        backward(gpu, unaligned, kGelu, mode, {true, false, true, true}, {.coefficients = 1});
        testing::expect_same_bits(unaligned.dx, fused.dx);
        testing::expect_same_bits(unaligned.dgamma, fused.dgamma);
        fused.y = unaligned.y;
        expect_alike(fused.y, separate.y, kGeluTolerance<TypeParam>, "y");
        expect_alike(fused.dx, separate.dx, kGeluTolerance<TypeParam>, "dx");
        expect_alike(fused.dgamma, separate.dgamma, kGeluTolerance<TypeParam>, "dgamma");
        expect_alike(fused.dbeta, separate.dbeta, kGeluTolerance<TypeParam>, "dbeta");
      }
  }
}

TYPED_TEST(CudaBatchNormGelu, OfShardsIsThatOfTheBatch) {
  const testing::ScopedClusters scope("0");  // which add in another order
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const auto& [rows, channels] : kGeluShapes) {
    Norm<TypeParam> whole(rows, channels), shards = whole;
    forward(gpu, whole, kGelu);
    forward_in_shards(gpu, shards, kGelu, {rows});
    testing::expect_same_bits(shards.y, whole.y);
    backward(gpu, whole, kGelu, GradMode::overwrite, {true, false, true, true});
    backward_in_shards(gpu, shards, kGelu, GradMode::overwrite, {rows});
    testing::expect_same_bits(shards.dx, whole.dx);
    testing::expect_same_bits(shards.dgamma, whole.dgamma);
  }
}

}  // namespace
}  // namespace convoy
