// Rounding of sizes.
#pragma once

#include <cstddef>
#include <limits>

namespace convoy {

/// Returns the smallest multiple of `step` that is not less than `size`. Returns a size that would overflow
/// as it is: no memory can serve it anyway.
constexpr std::size_t round_up(std::size_t size, std::size_t step) {
  if (size > std::numeric_limits<std::size_t>::max() - step) return size;
  return (size + step - 1) / step * step;
}

}  // namespace convoy
