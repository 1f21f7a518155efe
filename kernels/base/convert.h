// Conversion of one number between any two element types. Rounds to nearest even. Conversion to an integer
// type saturates and maps NaN to 0.
// Header only: the same code runs on the CPU and in CUDA kernels and gives the same bits on both. Only the
// payload of a NaN may differ. No expression multiplies and then adds, so no compiler can contract one to
// FMA.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "convoy/kernels/base/dtype.h"

namespace convoy {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// The type in which kernels compute on values of type T: f32 for f16 and bf16, otherwise T itself.
template <class T>
using compute_t = std::conditional_t<kIsHalf<T>, float, T>;

/// Returns x in the type that kernels compute in.
template <class T>
CONVOY_HOST_DEVICE constexpr compute_t<T> widened(T x) {
  return static_cast<compute_t<T>>(x);
}

namespace detail {

/// Returns x as a float rounded to odd: truncated towards zero, with the last bit set if the result is
/// inexact. Rounding that value to f16 or bf16 gives the same result as rounding x directly, because the last
/// bit keeps a value just above a tie from being taken for a tie. The method needs at least two spare bits
/// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
CONVOY_HOST_DEVICE inline float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;
  if (static_cast<double>(nearest) != x) bits |= 1;
  return std::bit_cast<float>(bits);
}

}  // namespace detail

/// Returns `value` converted to type To, by the rules at the top of this file.
template <class To, class From>
CONVOY_HOST_DEVICE To converted(From value) {
  const auto x = widened(value);
  if constexpr (kIsHalf<To>) {
    if constexpr (std::is_same_v<decltype(x), const float>) {
      return To(x);
    } else {
      return To(detail::rounded_to_odd(x));
    }
  } else if constexpr (std::is_integral_v<To>) {
    // A double represents every i32 and u8 exactly, so the bounds are exact too.
    constexpr double kLowest = std::numeric_limits<To>::min();
    constexpr double kLargest = std::numeric_limits<To>::max();
    // The rounding mode is never changed from its default, so ties go to even.
    const double nearest = std::rint(static_cast<double>(x));
    return nearest != nearest ? To{0} : static_cast<To>(std::min(std::max(nearest, kLowest), kLargest));
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace convoy
