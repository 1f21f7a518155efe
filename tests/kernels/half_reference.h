// A reference for rounding to f16 and bf16, by definition: the nearest representable value, or on a tie the
// one whose last bit is 0. It is slow and shares no code with the conversions under test.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "convoy/kernels/base/dtype.h"

namespace convoy::testing {

/// Returns the value of a bit pattern without sign, computed from its fields. The pattern of infinity counts
/// as the next power of two, 2^(bias + 1).
template <class Half>
double value_by_fields(std::uint32_t magnitude) {
  constexpr bool kIsFloat16 = dtype_of<Half> == DType::f16;
  constexpr int kMantissaBits = kIsFloat16 ? 10 : 7;
  constexpr int kBias = kIsFloat16 ? 15 : 127;
  const int exponent = static_cast<int>(magnitude >> kMantissaBits);
  const double mantissa = magnitude & ((1u << kMantissaBits) - 1);
  const double one = 1 << kMantissaBits;
  return exponent == 0 ? std::ldexp(mantissa / one, 1 - kBias)
                       : std::ldexp(1 + mantissa / one, exponent - kBias);
}

/// The bit pattern of infinity.
template <class Half>
inline constexpr std::uint32_t kInfinityBits = dtype_of<Half> == DType::f16 ? 0x7c00 : 0x7f80;

/// Returns the bits of the value nearest to x, which must not be NaN.
template <class Half>
std::uint16_t nearest_half(double x) {
  static const std::vector<double> values = [] {
    std::vector<double> out;
    for (std::uint32_t magnitude = 0; magnitude <= kInfinityBits<Half>; ++magnitude)
      out.push_back(value_by_fields<Half>(magnitude));
    return out;
  }();
  const std::uint32_t sign = std::signbit(x) ? 0x8000 : 0;
  const double size = std::abs(x);
  if (size >= values.back()) return static_cast<std::uint16_t>(sign | kInfinityBits<Half>);
  const auto above =
      static_cast<std::size_t>(std::upper_bound(values.begin(), values.end(), size) - values.begin());
  const std::size_t below = above - 1;
  const double middle = (values[below] + values[above]) / 2;  // exact in double
  const bool up = size > middle || (size == middle && below % 2 == 1);
  return static_cast<std::uint16_t>(sign | (up ? above : below));
}

}  // namespace convoy::testing
