// Conversion between any two element types, and filling with a value that is converted first.
#include <algorithm>

#include "kernels/convert.h"
#include "kernels/cpu/map.h"
#include "kernels/elementwise.h"

namespace convoy {

void cast(CpuStream& stream, ConstView x, View y) {
  dispatch(x.dtype, [&](auto from) {
    dispatch(y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        map_range<Mode::write>(
            begin, end, [](compute_t<From> value) { return converted<To>(value); }, y.as<To>(), x.as<From>());
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
