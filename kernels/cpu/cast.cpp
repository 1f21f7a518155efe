// Conversion between any two element types, and filling with a value that is converted first.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "kernels/cpu/map.h"
#include "kernels/elementwise.h"

namespace convoy {
namespace {

template <class T>
inline constexpr bool kIsHalf = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

/// The half types compute as float; the others are what they are.
template <class T>
auto widened(T x) {
  if constexpr (kIsHalf<T>) {
    return static_cast<float>(x);
  } else {
    return x;
  }
}

/// x as a float, cut towards zero, with the last bit set where anything was lost. Rounding that to a half
/// type gives what rounding x itself would have: the last bit keeps what is just above a tie from being taken
/// for one (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008: sound from two spare
/// bits on).
float rounded_to_odd(double x) {
  const auto nearest = static_cast<float>(x);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(x)) --bits;
  if (static_cast<double>(nearest) != x) bits |= 1;
  return std::bit_cast<float>(bits);
}

template <class To, class From>
To converted(From value) {
  const auto x = widened(value);
  if constexpr (kIsHalf<To>) {
    if constexpr (std::is_same_v<decltype(x), const float>) return To(x);
    return To(rounded_to_odd(x));
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

}  // namespace

void cast(CpuStream& stream, ConstView x, View y) {
  dispatch(x.dtype, [&](auto from) {
    dispatch(y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        map_range<Mode::write>(begin, end, converted<To, From>, y.as<To>(), x.as<From>());
      });
    });
  });
}

void fill(CpuStream& stream, double value, View y) {
  dispatch(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      std::fill(y.as<T>() + begin, y.as<T>() + end, converted<T>(value));
    });
  });
}

}  // namespace convoy
