// Vectorizable exponentials and activations: functions of one float that a compiler can apply to whole
// vectors, since they contain no branch, table or call. The functions of the C library take one number at a
// time. The f64 overloads, in which gradients are checked, call the C library.
//
// Each comment states the largest error that was found, in units in the last place of the result (ulp; 2^-149
// for a subnormal result). All floats with 2^-14 <= |x| < 128 and samples of the rest of the domain were
// tried. tests/kernels/cpu/vector_math_test.cpp checks these bounds. They hold with and without a fused
// multiply_add. NaN gives NaN.
//
// The method is standard (Muller, "Elementary Functions", 3rd ed., 2016, chapters 4 and 11; Cody and Waite,
// "Software Manual for the Elementary Functions", 1980): e^x = 2^n e^r, where n is the integer nearest to x /
// ln 2, so that |r| <= ln 2 / 2, and a polynomial approximates e^r. The coefficients were computed for this
// file by Remez exchange. The errors given with them do not include rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "convoy/kernels/base/multiply_add.h"
#include "convoy/kernels/shared/normal_quotient.h"

namespace convoy::kernels::vector_math {

/// Building blocks of the functions below.
namespace detail {

// ln 2 as the sum of two floats. The first has 15 bits, so that n kLn2High is exact.
inline constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 0x1.7f7d1cp-20F;
inline constexpr float kLog2E = std::numbers::log2e_v<float>;

/// Returns a constant that rounds to an integer when it is added: from 2^23 to 2^24 the floats are the
/// integers. The lowest bits of the sum hold n + bias, which power_of_two() shifts into the exponent, giving
/// 2^(n + bias - 127).
constexpr float shifter(int bias) { return 0x1.8p23F + static_cast<float>(bias); }
inline float power_of_two(float shifted) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
}

/// Returns e^r - 1 for |r| <= 0.3473 with a relative error of 2^-28. Accurate near 0, where computing e^r
/// first would cancel.
inline float exp_minus_one(float r) {
  float sum = 0x1.6a2268p-10F;
  sum = multiply_add(sum, r, 0x1.123b02p-7F);
  sum = multiply_add(sum, r, 0x1.5558f8p-5F);
  sum = multiply_add(sum, r, 0x1.55549p-3F);
  sum = multiply_add(sum, r, 0x1.fffffcp-2F);
  return multiply_add(sum, r * r, r);
}

// Results may be subnormal for small n. So the exponent is set to n + 100 (for n up to 27), and the last
// multiplication, by kLower, takes the 100 back. Only that multiplication may round to a subnormal.
inline constexpr float kLiftingShifter = shifter(127 + 100), kLower = 0x1p-100F;
inline float lifted_exp(float r, float shifted) { return (1 + exp_minus_one(r)) * power_of_two(shifted); }

/// Returns min(|x|, maximum); NaN propagates.
inline float magnitude(float x, float maximum) {
  const float size = std::fabs(x);
  return size > maximum ? maximum : size;
}

/// normal_density() is 0 in f32 for larger |x|.
inline constexpr float kNormalEnd = 14.5F;

/// Returns 2^100 e^(-x^2 / 2). Computes x^2 as the sum of two terms, since rounding it would cost x^2 / 4
/// ulp: the square of the upper 12 bits of x, which is exact, and (x - upper)(x + upper).
inline float lifted_exp_of_half_square(float x) {
  const float size = magnitude(x, kNormalEnd);
  const float upper = std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) & 0xfffff000U);
  const float shifted = multiply_add(size * size, -kLog2E / 2, kLiftingShifter);
  const float n = shifted - kLiftingShifter;
  const float high = multiply_add(n, 2 * kLn2High, upper * upper);  // exact
  const float both = multiply_add(size - upper, size + upper, high);
  return lifted_exp(multiply_add(n, 2 * kLn2Low, both) * -0.5F, shifted);
}

}  // namespace detail

/// Returns e^x for x <= 0 (valid up to 18), within 1.01 ulp. The result is 0 below -103.97 and at -infinity.
inline float exp_nonpositive(float x) {
  x = x < -104.0F ? -104.0F : x;
  const float shifted = multiply_add(x, detail::kLog2E, detail::kLiftingShifter);
  const float n = shifted - detail::kLiftingShifter;
  const float high = multiply_add(n, -detail::kLn2High, x);
  return detail::lifted_exp(multiply_add(n, -detail::kLn2Low, high), shifted) * detail::kLower;
}

/// Returns 1 / (1 + e^-x), within 2.41 ulp. The result is 0 below -103.97 and 1 from 16.64 on.
inline float sigmoid(float x) {
  const float small = exp_nonpositive(-std::fabs(x));  // e^-x could overflow although the result does not
  return (x < 0 ? small : 1.0F) / (1 + small);
}
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Returns log(1 + e^-|x|), within 3 ulp. With e = e^-|x| and s = e / (2 + e), which is at most 1/3, it is 2
/// artanh(s), whose series is cut where its terms are below 2^-27. Can be vectorized, unlike the C library's.
inline float log_one_plus_exp(float x) {
  const float e = exp_nonpositive(-std::fabs(x));
  const float s = e / (2 + e), square = s * s;
  float sum = 1.0F / 17;
  for (int power = 15; power >= 3; power -= 2) sum = sum * square + 1.0F / static_cast<float>(power);
  return 2 * s + 2 * s * square * sum;
}
inline double log_one_plus_exp(double x) { return std::log1p(std::exp(-std::abs(x))); }

/// Returns the hyperbolic tangent (e^2x - 1) / (e^2x + 1), within 2.67 ulp. tanh(-x) is exactly -tanh(x). The
/// result is 1 from 9.02 on.
inline float tanh(float x) {
  constexpr float kShifter = detail::shifter(127);
  const float twice = 2 * detail::magnitude(x, 10);
  const float shifted = multiply_add(twice, detail::kLog2E, kShifter);
  const float n = shifted - kShifter;
  const float high = multiply_add(n, -detail::kLn2High, twice);
  const float power = detail::power_of_two(shifted);
  // e^2x - 1. Near 0, power is 1, so no digit of the polynomial is lost.
  const float rise =
      multiply_add(power, detail::exp_minus_one(multiply_add(n, -detail::kLn2Low, high)), power - 1);
  return std::copysign(rise / (rise + 2), x);
}
inline double tanh(double x) { return std::tanh(x); }

/// Returns the density of the normal distribution, e^(-x^2/2) / sqrt(2 pi), within 2.14 ulp. The result is 0
/// for |x| > 14.36.
inline float normal_density(float x) {
  constexpr float kAtZero = std::numbers::inv_sqrtpi_v<float> * std::numbers::sqrt2_v<float> / 2;
  return detail::lifted_exp_of_half_square(x) * (kAtZero * detail::kLower);
}
inline double normal_density(double x) {
  return std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2 * std::exp(-x * x / 2);
}

/// Returns Phi(x), the probability that a standard normal variable is below x, within 7.9 ulp (6.7 if
/// multiply_add is fused), also far down the tail. For x < 0 the result is e^(-x^2/2), which decays at the
/// same rate, times normal_quotient(); 1 + erf would cancel there. The result is 0 below -14.17.
inline float normal_cdf(float x) {
  const float size = detail::magnitude(x, detail::kNormalEnd);
  const NormalQuotient quotient = normal_quotient(size);
  const float tail =
      detail::lifted_exp_of_half_square(x) * (quotient.above / quotient.below * detail::kLower);
  return x > 0 ? 1 - tail : tail;
}
/// Uses erfc, which is accurate where the result is tiny.
inline double normal_cdf(double x) { return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2); }

}  // namespace convoy::kernels::vector_math

// The CPU's Math of kernels/shared/elementwise_functions.h: vectorizable in f32, and the C library in f64.

namespace convoy::kernels {

struct CpuMath {
  template <class T>
  static T sigmoid(T x) {
    return vector_math::sigmoid(x);
  }
  template <class T>
  static T logistic(T x) {
    return vector_math::sigmoid(x);
  }
  template <class T>
  static T tanh(T x) {
    return vector_math::tanh(x);
  }
  template <class T>
  static T gelu(T x) {
    return x * vector_math::normal_cdf(x);
  }
  template <class T>
  static T gelu_derivative(T x) {
    return vector_math::normal_cdf(x) + x * vector_math::normal_density(x);
  }
  template <class T>
  static T log_one_plus_exp(T x) {
    return vector_math::log_one_plus_exp(x);
  }
};

}  // namespace convoy::kernels
