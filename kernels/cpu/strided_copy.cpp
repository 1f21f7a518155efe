#include "convoy/kernels/strided_copy.h"

#include "convoy/kernels/cpu/primitives/map.h"

namespace convoy::kernels {

void strided_copy(CpuStream& stream, const Shape& space, ConstView x, const Strides& x_strides, GradView y,
                  const Strides& y_strides) {
  if (!y.wanted()) return;
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    for_each_run<2>(stream, space, {x_strides, y_strides},
                    [&](std::int64_t count, const auto& at, const auto& inner) {
                      const T* const from = x.as<T>() + at[0];
                      T* const to = y.as<T>() + at[1];
                      with_mode(y.mode, [&]<GradMode kMode>() {
                        if (inner[0] == 1 && inner[1] == 1)
                          return map_range<kMode>(
                              0, count, [](auto u) { return u; }, to, from);
                        for (std::int64_t i = 0; i < count; ++i)
                          put<kMode>(to[i * inner[1]], widened(from[i * inner[0]]));
                      });
                    });
  });
}

}  // namespace convoy::kernels
