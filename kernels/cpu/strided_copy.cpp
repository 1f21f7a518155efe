#include "convoy/kernels/strided_copy.h"

#include "convoy/kernels/cpu/primitives/map.h"

namespace convoy::kernels {
namespace {

/// Copies `count` elements with the given strides.
template <GradMode kMode, class T>
void copy_run(std::int64_t count, const T* x, std::int64_t x_stride, T* y, std::int64_t y_stride) {
  const auto same = [](auto u) { return u; };
  if (x_stride == 1 && y_stride == 1) return map_range<kMode>(0, count, same, y, x);
  for (std::int64_t i = 0; i < count; ++i) put<kMode>(y[i * y_stride], widened(x[i * x_stride]));
}

}  // namespace

void strided_copy(CpuStream& stream, const Shape& space, ConstView x, const Strides& x_strides, GradView y,
                  const Strides& y_strides) {
  if (!y.wanted() || space.numel() == 0) return;
  const LoopNest<2> nest(space, {x_strides, y_strides});
  const std::int64_t count = nest.sizes[nest.last()];
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, nest.numel() / count, item_grain(count), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t run = begin; run < end; ++run) {
        const auto [from, to] = nest.outer_offsets(run);
        const T* const source = x.as<T>() + from;
        T* const target = y.as<T>() + to;
        if (y.mode == GradMode::accumulate) {
          copy_run<GradMode::accumulate>(count, source, nest.inner_stride(0), target, nest.inner_stride(1));
        } else {
          copy_run<GradMode::overwrite>(count, source, nest.inner_stride(0), target, nest.inner_stride(1));
        }
      }
    });
  });
}

}  // namespace convoy::kernels
