// Conversion of one number between any two element types: to nearest even, integers saturate, NaN becomes 0.
// Header only: the same code runs on the CPU and in kernels, and gives the same bits there (of a NaN, which
// one it is may differ). Nothing here multiplies and then adds, so no compiler can contract any of it.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/runtime/dtype.h"

namespace convoy {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// What is computed in where T is stored: f32 for the half types, else the type itself.
template <class T>
using compute_t = std::conditional_t<kIsHalf<T>, float, T>;

template <class T>
CONVOY_HOST_DEVICE constexpr compute_t<T> widened(T x) {
  return static_cast<compute_t<T>>(x);
}

namespace detail {

/// x as a float, cut towards zero, with the last bit set where anything was lost. Rounding that to a half
/// type gives what rounding x itself would have: the last bit keeps what is just above a tie from being taken
/// for one (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008: sound from two spare
/// bits on).
CONVOY_HOST_DEVICE inline float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;
  if (static_cast<double>(nearest) != x) bits |= 1;
  return std::bit_cast<float>(bits);
}

}  // namespace detail

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
    // A double holds every i32 and u8 exactly, so the bounds are exact too.
    constexpr double kLowest = std::numeric_limits<To>::min();
    constexpr double kLargest = std::numeric_limits<To>::max();
    const double nearest =
        std::rint(static_cast<double>(x));  // ties to even, the mode that nothing here changes
    return nearest != nearest ? To{0} : static_cast<To>(std::min(std::max(nearest, kLowest), kLargest));
  } else {
    return static_cast<To>(x);
  }
}

}  // namespace convoy
