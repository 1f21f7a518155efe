// Tests of the mask of batch norm's ReLU on the GPU: whether it is read from y, recomputed from x, or stored
// as a masked gradient, the gradients have the same bits.
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/kernels/batchnorm_shards.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ComputeType;
using testing::DeviceArray;
using testing::Fusion;
using testing::kWantAll;
using testing::Norm;
using testing::Offsets;

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

TYPED_TEST(CudaBatchNormMask, RecomputedForShardsIsTheOneOfY) {
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

}  // namespace
}  // namespace convoy
