// cast, fill and assign on the CPU (kernels/elementwise.h): conversion between any two element types.
#include <algorithm>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {

void cast(CpuStream& stream, ConstView x, View y) {
  dispatch(kAllTypes, x.dtype, [&](auto from) {
    dispatch(kAllTypes, y.dtype, [&](auto to) {
      using From = decltype(from);
      using To = decltype(to);
      parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        map_range<GradMode::overwrite>(
            begin, end, [](compute_t<From> value) { return converted<To>(value); }, y.as<To>(), x.as<From>());
      });
    });
  });
}

void fill(CpuStream& stream, double value, View y) {
  dispatch(kAllTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      std::fill(y.as<T>() + begin, y.as<T>() + end, converted<T>(value));
    });
  });
}

void assign(CpuStream& stream, std::span<const Assignment> arrays) {
  for (const Assignment& array : arrays) {
    if (array.from.data != nullptr) {
      cast(stream, array.from, array.to);
    } else {
      fill(stream, array.value, array.to);
    }
  }
}

}  // namespace convoy::kernels
