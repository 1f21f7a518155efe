// Tests of the error bounds of the vectorizable functions.
#include "convoy/kernels/cpu/primitives/vector_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <string>
#include <vector>

#include "convoy/kernels/elementwise.h"
#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

using Limits = std::numeric_limits<float>;
constexpr float kInfinity = Limits::infinity();
constexpr std::uint32_t kSign = 0x80000000U;

double sigmoid_of(double x) { return 1 / (1 + std::exp(-x)); }
double normal_cdf_of(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
double normal_density_of(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }

struct Function {
  std::string name;
  float (*found)(float);
  double (*expected)(double);
  double ulps;  // the error bound that the declaration states
  float minimum, maximum;
  bool takes_positive = true;
};

/// Each function with its range, which no result may leave.
const std::vector<Function> kFunctions = {
    {"exp_nonpositive", kernels::vector_math::exp_nonpositive, std::exp, 1.01, 0, 1, false},
    {"sigmoid", kernels::vector_math::sigmoid, sigmoid_of, 2.41, 0, 1},
    {"tanh", kernels::vector_math::tanh, std::tanh, 2.67, -1, 1},
    {"normal_density", kernels::vector_math::normal_density, normal_density_of, 2.14, 0, 0.39894229F},
    {"normal_cdf", kernels::vector_math::normal_cdf, normal_cdf_of, 7.9, 0, 1},
};

/// Returns the spacing of floats near x. It is constant for subnormal numbers.
double last_place(double x) {
  return std::ldexp(1.0, std::max(std::ilogb(x), Limits::min_exponent - 1) - (Limits::digits - 1));
}

/// Calls f with every step-th float from `first` to `last`, in the order of their bits.
template <class F>
void for_floats(float first, float last, std::uint32_t step, F f) {
  for (std::uint32_t bits = std::bit_cast<std::uint32_t>(first); bits <= std::bit_cast<std::uint32_t>(last);
       bits += step)
    f(std::bit_cast<float>(bits));
}

void check(const Function& function, float x) {
  const double expected = function.expected(x);
  const float found = function.found(x);
  ASSERT_LE(std::abs(found - expected), function.ulps * last_place(expected)) << function.name << " of " << x;
  ASSERT_TRUE(function.minimum <= found && found <= function.maximum)
      << function.name << " of " << x << ": " << found;
}

// Tests all exponents, and more closely the values where results are not 0, 1 or x. The steps are odd, so
// that the lowest bits take all values. (The double functions are accurate to 2^-44, even where x^2 amplifies
// a rounding error.)
TEST(VectorMath, StaysWithinItsErrorBounds) {
  for (const Function& function : kFunctions) {
    const auto both_signs = [&](float size) {
      if (function.takes_positive) check(function, size);
      check(function, -size);
    };
    for_floats(0.0F, kInfinity, 4099, both_signs);
    for_floats(0x1p-10F, 128.0F, 401, both_signs);
    both_signs(kInfinity);
    if (HasFatalFailure()) return;
  }
}

TEST(VectorMath, PropagatesNan) {
  for (const Function& function : kFunctions)
    for (const std::uint32_t payload : {0x7fc00000U, 0x7f800001U, 0x7fffffffU, 0x7fc00155U})
      for (const std::uint32_t sign : {0U, kSign})
        EXPECT_TRUE(std::isnan(function.found(std::bit_cast<float>(payload | sign))))
            << function.name << " of " << std::hex << (payload | sign);
}

TEST(VectorMath, ReachesItsLimitsWhereDocumented) {
  using namespace kernels::vector_math;
  for (const float huge : {kInfinity, Limits::max(), 1e4F, 150.0F}) {
    EXPECT_EQ(exp_nonpositive(-huge), 0);
    EXPECT_EQ(sigmoid(-huge), 0);
    EXPECT_EQ(sigmoid(huge), 1);
    EXPECT_EQ(tanh(-huge), -1);
    EXPECT_EQ(tanh(huge), 1);
    EXPECT_EQ(normal_density(-huge), 0);
    EXPECT_EQ(normal_density(huge), 0);
    EXPECT_EQ(normal_cdf(-huge), 0);
    EXPECT_EQ(normal_cdf(huge), 1);
  }
  for (const float tiny : {0.0F, -0.0F, -Limits::denorm_min(), -Limits::min()}) {
    EXPECT_EQ(exp_nonpositive(tiny), 1);
    EXPECT_EQ(sigmoid(tiny), 0.5F);
    EXPECT_EQ(tanh(tiny), tiny);
    EXPECT_EQ(std::signbit(tanh(tiny)), std::signbit(tiny));
    EXPECT_EQ(normal_cdf(tiny), 0.5F);
  }
  // The limits that the declarations state, including subnormal results.
  EXPECT_EQ(exp_nonpositive(-103.97F), Limits::denorm_min());
  EXPECT_EQ(exp_nonpositive(-103.98F), 0);
  EXPECT_EQ(sigmoid(-103.97F), Limits::denorm_min());
  EXPECT_EQ(normal_density(14.35F), Limits::denorm_min());
  EXPECT_EQ(normal_density(14.37F), 0);
  EXPECT_EQ(normal_cdf(-14.16F), Limits::denorm_min());
  EXPECT_EQ(normal_cdf(-14.18F), 0);
  EXPECT_LT(tanh(8.9F), 1);
  EXPECT_EQ(tanh(9.02F), 1);
}

TEST(VectorMath, IsSymmetric) {
  for_floats(0x1p-30F, 128.0F, 8191, [](float x) {
    ASSERT_EQ(kernels::vector_math::tanh(-x), -kernels::vector_math::tanh(x)) << x;
    ASSERT_EQ(kernels::vector_math::normal_density(-x), kernels::vector_math::normal_density(x)) << x;
  });
}

class VectorisedKernels : public ::testing::Test {
 protected:
  struct Kernel {
    std::string name;
    void (*run)(CpuStream&, ConstView dy, ConstView x, GradView z);
  };
  const std::vector<Kernel> kernels = {
      {"gelu_forward", [](CpuStream& s, ConstView, ConstView x,
                          GradView z) { kernels::unary_forward(s, kernels::UnaryOp::gelu, x, z); }},
      {"gelu_backward", [](CpuStream& s, ConstView dy, ConstView x,
                           GradView z) { kernels::unary_backward(s, kernels::UnaryOp::gelu, dy, x, z); }},
      {"silu_forward", [](CpuStream& s, ConstView, ConstView x,
                          GradView z) { kernels::unary_forward(s, kernels::UnaryOp::silu, x, z); }},
      {"silu_backward", [](CpuStream& s, ConstView dy, ConstView x,
                           GradView z) { kernels::unary_backward(s, kernels::UnaryOp::silu, dy, x, z); }},
      {"tanh_forward", [](CpuStream& s, ConstView, ConstView x,
                          GradView z) { kernels::unary_forward(s, kernels::UnaryOp::tanh, x, z); }},
      {"sigmoid_forward", [](CpuStream& s, ConstView, ConstView x,
                             GradView z) { kernels::unary_forward(s, kernels::UnaryOp::sigmoid, x, z); }},
  };
  CpuStream stream{{.threads = 1}};
};

// An element's bits must not depend on its position in the array: in a vector or in the tail after the last
// vector.
TEST_F(VectorisedKernels, GiveTheSameBitsAtEveryPosition) {
  constexpr std::int64_t kCount = 83;
  Array<float> x = Array<float>::random({kCount}, 1), dy = Array<float>::random({kCount}, 2), all({kCount});
  for (float& element : x) element *= 16;
  for (const Kernel& kernel : kernels) {
    kernel.run(stream, dy.view(), x.view(), all.grad());
    for (std::size_t i = 0; i < x.size(); ++i) {
      Array<float> alone({1});
      kernel.run(stream, Array<float>({1}, {dy[i]}).view(), Array<float>({1}, {x[i]}).view(), alone.grad());
      ASSERT_EQ(alone[0], all[i]) << kernel.name << " of " << x[i];
    }
  }
}

// Activations must keep their relative precision in the tail, down to the smallest normal numbers. The bounds
// are in units of 2^-23, the largest relative size of an ulp: the ulp of the function plus one or two
// roundings.
TEST_F(VectorisedKernels, AreAccurateInTheTail) {
  std::vector<float> points;
  for_floats(1.0F, 12.5F, 997, [&](float size) { points.push_back(-size); });
  const auto count = static_cast<std::int64_t>(points.size());
  Array<float> x({count}), ones({count}, 1), y({count}), dx({count});
  std::copy(points.begin(), points.end(), x.begin());
  kernels::unary_forward(stream, kernels::UnaryOp::gelu, x.view(), y.view());
  kernels::unary_backward(stream, kernels::UnaryOp::gelu, ones.view(), x.view(), dx.grad());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double u = x[i], cdf = normal_cdf_of(u), slope = u * normal_density_of(u);
    ASSERT_NEAR(y[i], u * cdf, (7.9 + 0.5) * 0x1p-23 * std::abs(u * cdf)) << u;
    ASSERT_NEAR(dx[i], cdf + slope, ((7.9 + 0.5) * cdf + (2.14 + 1) * std::abs(slope)) * 0x1p-23) << u;
  }
  kernels::unary_forward(stream, kernels::UnaryOp::silu, x.view(), y.view());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const double expected = x[i] * sigmoid_of(x[i]);
    ASSERT_NEAR(y[i], expected, (2.41 + 0.5) * 0x1p-23 * std::abs(expected)) << x[i];
  }
}

}  // namespace
}  // namespace convoy
