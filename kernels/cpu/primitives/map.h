// The loop of all elementwise CPU kernels.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "convoy/kernels/base/loop_nest.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cpu/primitives/element.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::kernels {

/// Minimum number of elements per thread: a few microseconds of memory traffic, about the cost of waking the
/// threads.
inline constexpr std::int64_t kElementGrain = 16384;

/// Returns the minimum number of items (images, rows) per thread, for items of `elements` elements each.
constexpr std::int64_t item_grain(std::int64_t elements) {
  return std::max<std::int64_t>(1, kElementGrain / std::max<std::int64_t>(1, elements));
}

/// Calls f with the mode as a template argument.
template <class F>
void with_mode(GradMode mode, F f) {
  if (mode == GradMode::accumulate) {
    f.template operator()<GradMode::accumulate>();
  } else {
    f.template operator()<GradMode::overwrite>();
  }
}

inline constexpr std::size_t kReductionLanes = 16;

/// Returns the result of op on all lanes, by halves. Changes them.
template <class C, class Op>
C combine_lanes(std::array<C, kReductionLanes>& lanes, Op op) {
  for (std::size_t half = kReductionLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] = op(lanes[lane], lanes[lane + half]);
  return lanes[0];
}

/// Sets y = value, or y += value, with the mode chosen at run time.
template <class Y, class V>
void put(GradMode mode, Y& y, V value) {
  mode == GradMode::accumulate ? put<GradMode::accumulate>(y, value) : put<GradMode::overwrite>(y, value);
}

/// Returns op(… op(op(start, f(0)), f(1)) …, f(n - 1)), in another order: that of kReductionLanes partial results, since the
/// compiler may not reorder a reduction to vectorize it. The order depends on n only.
template <class C, class F, class Op>
C reduce_lanes(std::int64_t n, C start, F f, Op op) {
  std::array<C, kReductionLanes> lanes;
  lanes.fill(start);
  std::int64_t i = 0;
  for (; i + std::int64_t{kReductionLanes} <= n; i += kReductionLanes)
    for (std::size_t lane = 0; lane < kReductionLanes; ++lane)
      lanes[lane] = op(lanes[lane], f(i + static_cast<std::int64_t>(lane)));
  for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] = op(lanes[lane], f(i));
  return combine_lanes(lanes, op);
}

/// Computes y[i] = f(x[i]…), or y[i] += f(x[i]…), for i in [begin, end). f takes and returns values in the
/// compute type. y may be one of the inputs, but must not overlap one at a different offset. The pragma
/// states this to the compiler, which would otherwise use a scalar loop when the arrays coincide.
template <GradMode kMode, class F, class Y, class... X>
void map_range(std::int64_t begin, std::int64_t end, F f, Y* y, const X*... x) {
#pragma GCC ivdep
  for (std::int64_t i = begin; i < end; ++i) put<kMode>(y[i], f(widened(x[i])...));
}

/// As above, with the mode chosen at run time, once for the whole loop.
template <class F, class Y, class... X>
void map_range(GradMode mode, std::int64_t begin, std::int64_t end, F f, Y* y, const X*... x) {
  with_mode(mode, [&]<GradMode kMode>() { map_range<kMode>(begin, end, f, y, x...); });
}

/// As above, over whole arrays and in parallel.
template <class F, class... X>
void map_arrays(const CpuStream& stream, F f, const View& y, const X&... x) {
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      map_range<GradMode::overwrite>(begin, end, f, y.template as<T>(), x.template as<T>()...);
    });
  });
}

/// As above, in the mode of y. Does nothing if y is null (an empty array or an unwanted gradient).
template <class F, class... X>
void map_arrays(const CpuStream& stream, F f, const GradView& y, const X&... x) {
  if (!y.wanted()) return;
  if (y.mode == GradMode::overwrite) return map_arrays(stream, f, static_cast<const View&>(y), x...);
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      map_range<GradMode::accumulate>(begin, end, f, y.template as<T>(), x.template as<T>()...);
    });
  });
}

/// Calls f(count, offsets, inner strides) for each innermost loop over an index space, in parallel.
template <int kArrays, class F>
void for_each_run(const CpuStream& stream, const Shape& space, const std::array<Strides, kArrays>& strides,
                  F f) {
  if (space.numel() == 0) return;
  const LoopNest<kArrays> nest(space, strides);
  const std::int64_t count = nest.sizes[nest.last()];
  std::array<std::int64_t, kArrays> inner;
  for (std::size_t a = 0; a < kArrays; ++a) inner[a] = nest.inner_stride(a);
  // A single long loop is split as well.
  const std::int64_t runs = nest.numel() / count;
  if (runs == 1) {
    parallel_for(stream, count, kElementGrain, [&](std::int64_t begin, std::int64_t end) {
      auto offsets = nest.outer_offsets(0);
      for (std::size_t a = 0; a < kArrays; ++a) offsets[a] += begin * inner[a];
      f(end - begin, offsets, inner);
    });
    return;
  }
  parallel_for(stream, runs, item_grain(count), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t run = begin; run < end; ++run) f(count, nest.outer_offsets(run), inner);
  });
}

/// map_arrays() with the arguments in the order of the kernels and the function last.
template <class F>
void map(const CpuStream& stream, const GradView& y, F f) {
  map_arrays(stream, f, y);
}
template <class Y, class F>
void map(const CpuStream& stream, const ConstView& x, const Y& y, F f) {
  map_arrays(stream, f, y, x);
}
template <class Y, class F>
void map(const CpuStream& stream, const ConstView& x, const ConstView& y, const Y& z, F f) {
  map_arrays(stream, f, z, x, y);
}

}  // namespace convoy::kernels
