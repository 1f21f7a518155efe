// Rounding to a 16-bit floating type by its definition: the nearest of all its values, of two equally near
// ones the one whose last bit is 0. Slow, and shares no code with the conversions that it checks.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/runtime/dtype.h"

namespace convoy::testing {

/// The value of a pattern from its fields; infinity counts as the power of two that would come next,
/// 2^bias 2.
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

template <class Half>
inline constexpr std::uint32_t kInfinityBits = dtype_of<Half> == DType::f16 ? 0x7c00 : 0x7f80;

/// The bits of the nearest value to x, which is not NaN.
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
  const double middle = (values[below] + values[above]) / 2;  // exact: a double has bits to spare
  const bool up = size > middle || (size == middle && below % 2 == 1);
  return static_cast<std::uint16_t>(sign | (up ? above : below));
}

}  // namespace convoy::testing
