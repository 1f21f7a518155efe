// kernels/reduce_axes.h on the CPU. If the summed elements are contiguous, each output is the sum of whole runs
// in sixteen lanes. Otherwise the innermost axis remains, and rows of it are added to a row of f64 sums.
#include "convoy/kernels/reduce_axes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/shared/reduction_axes.h"

namespace convoy::kernels {
namespace {

constexpr std::size_t kRunLanes = 16;
constexpr std::int64_t kColumns = 512;  // sums that one thread holds: 4 KiB, within the L1 cache

/// Returns the sum of n elements with a stride, in sixteen lanes that are added pairwise.
template <class T>
double sum_run(const T* x, std::int64_t n, std::int64_t stride) {
  std::array<double, kRunLanes> lanes{};
  std::int64_t i = 0;
  for (; i + std::int64_t{kRunLanes} <= n; i += kRunLanes)
    for (std::size_t lane = 0; lane < kRunLanes; ++lane)
      lanes[lane] += static_cast<double>(widened(x[(i + static_cast<std::int64_t>(lane)) * stride]));
  for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += static_cast<double>(widened(x[i * stride]));
  for (std::size_t half = kRunLanes / 2; half > 0; half /= 2)
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  return lanes[0];
}

/// Stores a sum, scaled by a, in the type of y.
template <class T>
void store(GradMode mode, T& y, double value) {
  mode == GradMode::accumulate ? put<GradMode::accumulate>(y, value) : put<GradMode::overwrite>(y, value);
}

/// Sums for outputs whose terms lie along the innermost axis, or anywhere.
template <class T>
void sum_runs(const CpuStream& stream, const ReductionAxes& axes, const T* x, double a, GradView y) {
  const std::int64_t run = axes.reduced.sizes[axes.reduced.last()];
  const std::int64_t terms = axes.reduced.numel();
  const std::int64_t inner = axes.kept.sizes[axes.kept.last()];
  parallel_for(stream, y.numel(), item_grain(terms), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const T* const first =
          x + axes.kept.outer_offsets(i / inner)[0] + i % inner * axes.kept.inner_stride(0);
      double sum = 0;
      for (std::int64_t r = 0; r < terms / run; ++r)
        sum += sum_run(first + axes.reduced.outer_offsets(r)[0], run, axes.reduced.inner_stride(0));
      store(y.mode, y.as<T>()[i], a * sum);
    }
  });
}

/// Sums for outputs that are adjacent along the innermost axis of x.
template <class T>
void sum_columns(const CpuStream& stream, const ReductionAxes& axes, const T* x, double a, GradView y) {
  const std::int64_t inner = axes.kept.sizes[axes.kept.last()];
  const std::int64_t pieces = (inner + kColumns - 1) / kColumns;
  const std::int64_t run = axes.reduced.sizes[axes.reduced.last()];
  const std::int64_t terms = axes.reduced.numel();
  parallel_for(
      stream, y.numel() / inner * pieces, item_grain(terms * std::min(inner, kColumns)),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const std::int64_t column = i % pieces * kColumns;
          const std::int64_t count = std::min(kColumns, inner - column);
          const T* const first = x + axes.kept.outer_offsets(i / pieces)[0] + column;
          std::array<double, kColumns> sums{};
          for (std::int64_t r = 0; r < terms; ++r)
            map_range<GradMode::accumulate>(
                0, count, [](auto u) { return static_cast<double>(u); }, sums.data(),
                first + axes.reduced.outer_offsets(r / run)[0] + r % run * axes.reduced.inner_stride(0));
          map_range(
              y.mode, 0, count, [a](double sum) { return a * sum; }, y.as<T>() + i / pieces * inner + column,
              sums.data());
        }
      });
}

}  // namespace

void sum_axes(CpuStream& stream, ConstView x, double a, GradView y) {
  if (!y.wanted() || y.numel() == 0) return;
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (x.numel() == 0) {
      map(stream, y, [] { return 0.0; });
      return;
    }
    const ReductionAxes axes(x.shape, y.shape);
    if (axes.kept.inner_stride(0) == 1) {
      sum_columns(stream, axes, x.as<T>(), a, y);
    } else {
      sum_runs(stream, axes, x.as<T>(), a, y);
    }
  });
}

void max_axis(CpuStream& stream, ConstView x, View y, View indices) {
  const std::int64_t n = x.shape[1], inner = x.shape[2];
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, y.numel(), item_grain(n), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        const T* const first = x.as<T>() + i / inner * n * inner + i % inner;
        std::int64_t at = 0;
        for (std::int64_t k = 1; k < n && !std::isnan(widened(first[at * inner])); ++k)
          // True if the new element is larger or NaN.
          if (!(widened(first[k * inner]) <= widened(first[at * inner]))) at = k;
        y.as<T>()[i] = first[at * inner];
        indices.as<std::int32_t>()[i] = static_cast<std::int32_t>(at);
      }
    });
  });
}

void max_axis_backward(CpuStream& stream, ConstView dy, ConstView indices, GradView dx) {
  if (!dx.wanted()) return;
  const std::int64_t n = dx.shape[1], inner = dx.shape[2];
  dispatch(kCpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, dx.shape[0] * n, item_grain(inner), [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t row = begin; row < end; ++row)
        map_range(
            dx.mode, 0, inner,
            [k = static_cast<std::int32_t>(row % n)](auto d, std::int32_t index) {
              return index == k ? d : decltype(d){0};
            },
            dx.as<T>() + row * inner, dy.as<T>() + row / n * inner,
            indices.as<std::int32_t>() + row / n * inner);
    });
  });
}

}  // namespace convoy::kernels
