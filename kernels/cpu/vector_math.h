// Exponentials and what is made of them, as functions of one float that a compiler can run on a whole vector
// of floats: no branch, no table, no call. (The C library's take one number at a time.) Double precision,
// which gradients are checked in, stays with the C library.
//
// Each declaration states the largest error that was found, in units of the last place of the result (ulp; of
// a subnormal result, 2^-149), over every float of 2^-14 <= |x| < 128 and samples of the rest of the domain;
// tests/kernels/vector_math_test.cpp holds them to it. They hold with a fused multiply_add and without. NaN
// gives NaN.
//
// The way is the usual one (Muller, "Elementary Functions", 3rd ed., 2016, chapters 4 and 11; Cody and Waite,
// "Software Manual for the Elementary Functions", 1980): e^x = 2^n e^r, where n is the whole number nearest
// to x / ln 2, so that |r| <= ln 2 / 2, and e^r a polynomial. Coefficients are our own, by Remez's exchange
// for the polynomial and, for the quotient, by least squares whose weights Lawson's iteration moves to where
// the error is largest; the errors given with them are before any rounding.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "kernels/runtime/multiply_add.h"

namespace convoy::vector_math {

/// Steps that the functions share.
namespace parts {

// ln 2 in two parts: the first has 15 bits, so that its product with n is exact.
inline constexpr float kLn2High = 0x1.62e4p-1F, kLn2Low = 0x1.7f7d1cp-20F;
inline constexpr float kLog2E = std::numbers::log2e_v<float>;

/// From 2^23 to 2^24 floats are the whole numbers: adding this rounds to one, and leaves it in the lowest
/// bits, which power_of_two shifts into the exponent: to 2^(n + bias - 127).
constexpr float shifter(int bias) { return 0x1.8p23F + static_cast<float>(bias); }
inline float power_of_two(float shifted) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(shifted) << 23);
}

/// e^r - 1 for |r| <= 0.3473, to 2^-28 of it. Accurate near 0, where e^r itself has no digits of it left.
inline float exp_minus_one(float r) {
  float sum = 0x1.6a2268p-10F;
  sum = multiply_add(sum, r, 0x1.123b02p-7F);
  sum = multiply_add(sum, r, 0x1.5558f8p-5F);
  sum = multiply_add(sum, r, 0x1.55549p-3F);
  sum = multiply_add(sum, r, 0x1.fffffcp-2F);
  return multiply_add(sum, r * r, r);
}

// Results may be subnormal where n is small, so the exponent is filled with n + 100, up to n = 27; kLower, in
// the last product, which alone may round there, takes the 100 back.
inline constexpr float kLiftingShifter = shifter(127 + 100), kLower = 0x1p-100F;
inline float lifted_exp(float r, float shifted) { return (1 + exp_minus_one(r)) * power_of_two(shifted); }

/// |x|, at most `most`; NaN stays.
inline float magnitude(float x, float most) {
  const float size = std::fabs(x);
  return size > most ? most : size;
}

/// Beyond this normal_density is 0 in float.
inline constexpr float kNormalEnd = 14.5F;

/// 2^100 e^(-x^2 / 2). The square of x is taken in two parts, since rounding it would cost x^2 / 4 ulp: the
/// upper 12 bits of x have an exact square, and (x - upper)(x + upper) is the rest.
inline float lifted_exp_of_half_square(float x) {
  const float size = magnitude(x, kNormalEnd);
  const float upper = std::bit_cast<float>(std::bit_cast<std::uint32_t>(size) & 0xfffff000U);
  const float shifted = multiply_add(size * size, -kLog2E / 2, kLiftingShifter);
  const float n = shifted - kLiftingShifter;
  const float high = multiply_add(n, 2 * kLn2High, upper * upper);  // exact
  const float both = multiply_add(size - upper, size + upper, high);
  return lifted_exp(multiply_add(n, 2 * kLn2Low, both) * -0.5F, shifted);
}

}  // namespace parts

/// e^x for x <= 0 (and up to 18), within 1.01 ulp. Below -103.97, and at -infinity, 0.
inline float exp_nonpositive(float x) {
  x = x < -104.0F ? -104.0F : x;
  const float shifted = multiply_add(x, parts::kLog2E, parts::kLiftingShifter);
  const float n = shifted - parts::kLiftingShifter;
  const float high = multiply_add(n, -parts::kLn2High, x);
  return parts::lifted_exp(multiply_add(n, -parts::kLn2Low, high), shifted) * parts::kLower;
}

/// 1 / (1 + e^-x) within 2.41 ulp; below -103.97 it is 0, from 16.64 on it is 1.
inline float sigmoid(float x) {
  const float small = exp_nonpositive(-std::fabs(x));  // e^-x would overflow where the result does not
  return (x < 0 ? small : 1.0F) / (1 + small);
}
inline double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

/// Hyperbolic tangent, (e^2x - 1) / (e^2x + 1), within 2.67 ulp; of its own sign. From 9.02 on it is 1.
inline float tanh(float x) {
  constexpr float kShifter = parts::shifter(127);
  const float twice = 2 * parts::magnitude(x, 10);
  const float shifted = multiply_add(twice, parts::kLog2E, kShifter);
  const float n = shifted - kShifter;
  const float high = multiply_add(n, -parts::kLn2High, twice);
  const float power = parts::power_of_two(shifted);
  // e^2x - 1: near 0 power is 1, so all digits of the polynomial stay.
  const float rise =
      multiply_add(power, parts::exp_minus_one(multiply_add(n, -parts::kLn2Low, high)), power - 1);
  return std::copysign(rise / (rise + 2), x);
}
inline double tanh(double x) { return std::tanh(x); }

/// The density of the normal distribution, e^(-x^2/2) / sqrt(2 pi), within 2.14 ulp. Beyond 14.36 it is 0.
inline float normal_density(float x) {
  constexpr float kAtZero = std::numbers::inv_sqrtpi_v<float> * std::numbers::sqrt2_v<float> / 2;
  return parts::lifted_exp_of_half_square(x) * (kAtZero * parts::kLower);
}
inline double normal_density(double x) {
  return std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2 * std::exp(-x * x / 2);
}

/// Phi(x), the probability that a standard normal variable is below x, within 7.9 ulp (6.7 where multiply_add
/// is fused), far down in the tail too: below 0 it is e^(-x^2/2), which decays as fast, times a quotient that
/// falls slowly from 1/2 (half of erfcx(-x / sqrt 2)). 1 + erf would cancel there. Below -14.17 it is 0.
inline float normal_cdf(float x) {
  const float size = parts::magnitude(x, parts::kNormalEnd);
  // All terms are positive, so nothing cancels. To 2^-27 of the quotient up to kNormalEnd.
  float above = 0x1.0dc7f8p-8F;
  above = multiply_add(above, size, 0x1.4ce116p-5F);
  above = multiply_add(above, size, 0x1.77462ap-3F);
  above = multiply_add(above, size, 0x1.c0d1cep-2F);
  above = multiply_add(above, size, 0.5F);
  float below = 0x1.521dd6p-7F;
  below = multiply_add(below, size, 0x1.a13a8ap-4F);
  below = multiply_add(below, size, 0x1.e0bfcap-2F);
  below = multiply_add(below, size, 0x1.33d85ap+0F);
  below = multiply_add(below, size, 0x1.acab18p+0F);
  below = multiply_add(below, size, 1.0F);
  const float tail = parts::lifted_exp_of_half_square(x) * (above / below * parts::kLower);
  return x > 0 ? 1 - tail : tail;
}
/// By erfc, which stays accurate where the result is tiny.
inline double normal_cdf(double x) { return 0.5 * std::erfc(-x * std::numbers::sqrt2 / 2); }

}  // namespace convoy::vector_math
