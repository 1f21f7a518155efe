// Tests that a batch norm with a fused GELU computes on a GPU what separate kernels compute.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/normal_quotient.h"
#include "tests/kernels/batchnorm_shards.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using testing::Fusion;
using testing::Norm;

constexpr Fusion kPlain{.training = true, .relu = false, .residual = false};
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
  forward(gpu, norm, kPlain);
  const DeviceArray<T> u(gpu, norm.y), dy(gpu, norm.dy);
  on(gpu.stream(), [&](auto& s) {
    kernels::unary_backward(s, kernels::UnaryOp::gelu, dy.view(), u.view(), dy.grad());
    kernels::unary_forward(s, kernels::UnaryOp::gelu, u.view(), u.view());
  });
  Norm<T> masked = norm;
  masked.dy = dy.values();
  backward(gpu, masked, kPlain, mode, {true, false, true, true});
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

TYPED_TEST(CudaBatchNormGelu, OfShardsIsThatOfTheBatch) {
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
