// The descending order of elements behind top_k() in kernels/gather.h.
#pragma once

#include <cstdint>

#include "convoy/kernels/base/convert.h"

namespace convoy::kernels {

/// Returns whether x at position i comes before y at position j in descending order. NaN comes first, and
/// equal elements are in the order of their positions.
template <class C>
CONVOY_HOST_DEVICE bool comes_before(C x, std::int64_t i, C y, std::int64_t j) {
  const bool x_is_nan = x != x, y_is_nan = y != y;
  if (x_is_nan != y_is_nan) return x_is_nan;
  return x > y || ((x == y || x_is_nan) && i < j);
}

}  // namespace convoy::kernels
