// The two functions that Box and Muller's method asks for, in double, as a compiler can run them on whole
// vectors: no branch, no table, no call. Taylor series do, since both arguments can be brought near 0, and
// their coefficients need no explanation.
#pragma once

#include <bit>
#include <cstdint>
#include <numbers>

namespace convoy::box_muller {

/// The logarithm of w, for 2^-1000 <= w <= 1, within 2.1 ulp. w = 2^e m, with m from sqrt(1/2) to sqrt(2);
/// and log m = 2 artanh(s), where s = (m - 1) / (m + 1) is at most 0.172, so that s^22 is below 2^-55.
inline double log_of(double w) {
  constexpr std::uint64_t kOne = std::bit_cast<std::uint64_t>(1.0);
  constexpr std::uint64_t kRoot = std::bit_cast<std::uint64_t>(std::numbers::sqrt2 / 2);
  const std::uint64_t bits = std::bit_cast<std::uint64_t>(w);
  const std::uint64_t biased = (bits + (kOne - kRoot)) >> 52;  // e + 1023
  const double m = std::bit_cast<double>(bits - ((biased - 1023) << 52));
  // The lowest digits of 2^52 + n are n: a conversion that every vector unit has.
  const double e = std::bit_cast<double>(std::bit_cast<std::uint64_t>(0x1p52) | biased) - (0x1p52 + 1023);
  const double s = (m - 1) / (m + 1), square = s * s;
  double sum = 1.0 / 21;
  for (int power = 19; power >= 3; power -= 2) sum = sum * square + 1.0 / power;
  return e * std::numbers::ln2 + (2 * s + 2 * s * square * sum);
}

struct Direction {
  double cosine, sine;
};

/// Cosine and sine of `turns` full turns, 0 <= turns < 1, each within 2^-52: turns is the nearest quarter and
/// at most an eighth beside it.
inline Direction direction_of(double turns) {
  const int quarter = static_cast<int>(4 * turns + 0.5);
  const double beside = turns - 0.25 * quarter;  // exact
  const double x = 2 * std::numbers::pi * beside, square = x * x;
  // x - x^3 / 3! + … and 1 - x^2 / 2! + …, from the last term back: the next ones are below 2^-62.
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

}  // namespace convoy::box_muller
