// The loop of every elementwise CPU kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/element.h"
#include "kernels/runtime/parallel.h"
#include "kernels/runtime/view.h"

namespace convoy {

/// Elements that are worth a thread of their own: a few microseconds of memory traffic, which is what it
/// costs to wake a team.
inline constexpr std::int64_t kElementGrain = 16384;

/// The same for items (images, rows) of so many elements each.
constexpr std::int64_t item_grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(1, elements));
}

/// y[i] = f(x[i]…), or y[i] += f(x[i]…), for i in [begin, end): f takes and returns what is computed in. An
/// output may be one of the inputs, but never a shifted one: the pragma tells the compiler so, which would
/// otherwise fall back to scalars when they coincide.
template <Mode kMode, class F, class Y, class... X>
void map_range(std::int64_t begin, std::int64_t end, F f, Y* y, const X*... x) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) put<kMode>(y[i], f(widened(x[i])...));
}

/// The same, the mode settled once for the whole loop.
template <class F, class Y, class... X>
void map_range(Mode mode, std::int64_t begin, std::int64_t end, F f, Y* y, const X*... x) {
  if (mode == Mode::add) {
    map_range<Mode::add>(begin, end, f, y, x...);
  } else {
    map_range<Mode::write>(begin, end, f, y, x...);
  }
}

/// The same over whole arrays, in parallel. Nothing happens where y is null: empty, or a gradient nobody
/// wants.
template <class F, class... X>
void map_arrays(const CpuStream& stream, F f, const GradView& y, const X&... x) {
  if (!y.wanted()) return;
  dispatch_stored(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      map_range(y.mode, begin, end, f, y.template as<T>(), x.template as<T>()...);
    });
  });
}

/// map_arrays with its arguments in the kernels' order, so that the function stands last.
template <class F>
void map(const CpuStream& stream, const GradView& y, F f) {
  map_arrays(stream, f, y);
}
template <class F>
void map(const CpuStream& stream, const ConstView& x, const GradView& y, F f) {
  map_arrays(stream, f, y, x);
}
template <class F>
void map(const CpuStream& stream, const ConstView& x, const ConstView& y, const GradView& z, F f) {
  map_arrays(stream, f, z, x, y);
}

}  // namespace convoy
