// The two functions of the Box-Muller transform in f64, written so that a compiler can vectorize them: no
// branch, no table, no call. Both arguments can be reduced to values near 0, where Taylor series are accurate
// enough.
#pragma once

#include <bit>
#include <cstdint>
#include <numbers>

namespace convoy::kernels::box_muller {

/// Returns the natural logarithm of w for 2^-1000 <= w <= 1, within 2.1 ulp. Splits w = 2^e m with m from
/// sqrt(1/2) to sqrt(2). Then log m = 2 artanh(s), where s = (m - 1) / (m + 1) is at most 0.172, so that s^22
/// < 2^-55.
inline double log(double w) {
  constexpr std::uint64_t kOne = std::bit_cast<std::uint64_t>(1.0);
  constexpr std::uint64_t kRoot = std::bit_cast<std::uint64_t>(std::numbers::sqrt2 / 2);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(w);
  const std::uint64_t biased = (bits + (kOne - kRoot)) >> 52;  // e + 1023
  const double m = std::bit_cast<double>(bits - ((biased - 1023) << 52));
  // Converts the integer to f64 without a conversion instruction: the lowest bits of the double 2^52 + n are
  // n.
  const double e = std::bit_cast<double>(std::bit_cast<std::uint64_t>(0x1p52) | biased) - (0x1p52 + 1023);
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 1.0 / 21;
  for (int power = 19; power >= 3; power -= 2) sum = sum * square + 1.0 / power;
  return e * std::numbers::ln2 + (2 * s + 2 * s * square * sum);
}

struct CosineAndSine {
  double cosine, sine;
};

/// Returns the cosine and sine of 2 pi `turns` for 0 <= turns < 1, each within 2^-52. Splits `turns` into the
/// nearest quarter and a remainder of at most an eighth in magnitude.
inline CosineAndSine cosine_and_sine(double turns) {
  const int quarter = static_cast<int>(4 * turns + 0.5);
  const double remainder = turns - 0.25 * quarter;  // exact
  const double x = 2 * std::numbers::pi * remainder, square = x * x;
  // Sums x - x^3 / 3! + … and 1 - x^2 / 2! + … from the last term back. The first omitted terms are below
  // 2^-62.
  double sine = 1, cosine = 1;
  for (int n = 16; n >= 2; n -= 2) {
    sine = 1 - square * (1.0 / (n * (n + 1))) * sine;
    cosine = 1 - square * (1.0 / (n * (n - 1))) * cosine;
  }
  sine *= x;
  const bool is_odd = (quarter & 1) != 0;
  const double sign = (quarter & 2) != 0 ? -1 : 1;
  return {sign * (is_odd ? -sine : cosine), sign * (is_odd ? cosine : sine)};
}

}  // namespace convoy::kernels::box_muller
