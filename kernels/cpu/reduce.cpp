// kernels/reduce.h on the CPU. An array is split into blocks of a fixed size, independent of the number of
// threads. One thread sums each block, and the blocks' sums are added in order.
#include "convoy/kernels/reduce.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <type_traits>
#include <vector>

#include "convoy/kernels/base/checksum.h"
#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cpu/primitives/map.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/shared/reduction_axes.h"

namespace convoy::kernels {
namespace {

constexpr std::int64_t kBlock = 8192;    // elements
constexpr std::int64_t kBlockGrain = 4;  // minimum number of blocks per thread

/// Returns f(x[0]) + f(x[stride]) + …, n terms, in lanes that are added pairwise.
template <class T, class Stride, class F>
double sum_block(const T* x, std::int64_t n, Stride stride, F f) {
  return reduce_lanes(
      n, 0.0, [=](std::int64_t i) { return f(static_cast<double>(widened(x[i * stride]))); }, std::plus<>());
}

/// Returns the sum of f over all elements of all tensors.
template <class F>
double sum_all(const CpuStream& stream, std::span<const ConstView> tensors, F f) {
  struct Block {
    const ConstView* tensor;
    std::int64_t begin;
  };
  std::vector<Block> blocks;
  for (const ConstView& tensor : tensors)
    for (std::int64_t begin = 0; begin < tensor.numel(); begin += kBlock) blocks.push_back({&tensor, begin});

  std::vector<double> sums(blocks.size());
  parallel_for(stream, std::ssize(blocks), kBlockGrain, [&](std::int64_t first, std::int64_t last) {
    for (auto i = static_cast<std::size_t>(first); i < static_cast<std::size_t>(last); ++i) {
      const Block& block = blocks[i];
      const std::int64_t count = std::min(kBlock, block.tensor->numel() - block.begin);
      sums[i] = dispatch(kCpuMemoryTypes, block.tensor->dtype, [&](auto zero) {
        return sum_block(block.tensor->template as<decltype(zero)>() + block.begin, count,
                         std::integral_constant<int, 1>(), f);
      });
    }
  });
  double total = 0;
  for (const double sum : sums) total += sum;
  return total;
}

/// An array viewed as a matrix [rows, columns], where columns is the size of the last axis.
struct Matrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;

  explicit Matrix(const Shape& shape) : columns(shape[-1]) {
    if (columns > 0) rows = shape.numel() / columns;
  }
  /// Returns the number of rows that hold about `elements` elements; at least one.
  std::int64_t rows_holding(std::int64_t elements) const {
    return std::max<std::int64_t>(1, elements / std::max<std::int64_t>(columns, 1));
  }
};

}  // namespace

void sum(CpuStream& stream, ConstView x, GradView y, double a) {
  if (!y.wanted()) return;
  const double total = a * sum_all(stream, {&x, 1}, [](double u) { return u; });
  map(stream, y, [total] { return total; });
}

void sum_rows(CpuStream& stream, ConstView x, GradView y) {
  if (!y.wanted()) return;
  const Matrix matrix(x.shape);
  constexpr std::int64_t kMinRows = 64;  // keeps the blocks' sums small compared with x
  const std::int64_t block_rows = std::max(kMinRows, matrix.rows_holding(kBlock));
  const std::int64_t blocks = (matrix.rows + block_rows - 1) / block_rows;
  // Short rows are added several at a time, like one long row, to sums of their own: an addition waits for the one before
  // it to the same sum.
  constexpr std::int64_t kRowLength = 48;
  const std::int64_t together =
      std::max<std::int64_t>(1, kRowLength / std::max<std::int64_t>(matrix.columns, 1));
  const std::int64_t width = together * matrix.columns;
  std::vector<double> sums(static_cast<std::size_t>(std::max<std::int64_t>(blocks, 1) * width));
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    parallel_for(stream, blocks, 1, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t block = first; block < last; ++block) {
        const std::int64_t end = std::min(matrix.rows, (block + 1) * block_rows);
        for (std::int64_t row = block * block_rows; row < end; row += together)
          map_range<GradMode::accumulate>(
              0, std::min(together, end - row) * matrix.columns,
              [](auto u) { return static_cast<double>(u); }, sums.data() + block * width,
              x.as<T>() + row * matrix.columns);
      }
    });
  });
  for (std::int64_t row = 1; row < blocks * together; ++row)
    map_range<GradMode::accumulate>(
        0, matrix.columns, [](double u) { return u; }, sums.data(), sums.data() + row * matrix.columns);
  dispatch(kCpuTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    map_range(
        y.mode, 0, matrix.columns, [](double u) { return u; }, y.as<T>(), sums.data());
  });
}

void relu_bias_backward(CpuStream& stream, ConstView dy, ConstView y, View g, GradView db) {
  unary_backward(stream, UnaryOp::relu, dy, y, GradView(g));
  sum_rows(stream, g, db);
}

void add_bias(CpuStream& stream, ConstView x, ConstView bias, View y, bool relu) {
  const Matrix matrix(x.shape);
  dispatch(kCpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    using C = compute_t<T>;
    const auto map_rows = [&](auto f) {
      parallel_for(stream, matrix.rows, matrix.rows_holding(kElementGrain),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row)
                       map_range<GradMode::overwrite>(0, matrix.columns, f, y.as<T>() + row * matrix.columns,
                                                      x.as<T>() + row * matrix.columns, bias.as<T>());
                   });
    };
    if (!relu) return map_rows([](C u, C b) { return u + b; });
    map_rows([](C u, C b) { return C{0} > u + b ? C{0} : u + b; });  // this operand order propagates NaN
  });
}

void global_norm(CpuStream& stream, std::span<const ConstView> tensors, View norm) {
  *norm.as<double>() = std::sqrt(sum_all(stream, tensors, [](double u) { return u * u; }));
}

void count_non_finite(CpuStream& stream, std::span<const ConstView> tensors, View count) {
  constexpr double kMax = std::numeric_limits<std::int32_t>::max();
  const double found = sum_all(stream, tensors, [](double u) { return std::isfinite(u) ? 0.0 : 1.0; });
  *count.as<std::int32_t>() = static_cast<std::int32_t>(std::min(found, kMax));
}

void checksum(CpuStream&, ConstView x, View value) {
  Checksum checksum;
  checksum.add(x.data, x.bytes());
  const std::uint64_t result = checksum.value();
  std::memcpy(value.data, &result, sizeof result);
}

// reduce_axes of kernels/reduce.h on the CPU. If the summed elements are contiguous, each output is the sum of whole runs
// in sixteen lanes. Otherwise the innermost axis remains, and rows of it are added to a row of f64 sums.

namespace {

constexpr std::int64_t kColumns = 512;  // sums that one thread holds: 4 KiB, within the L1 cache

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
        sum += sum_block(first + axes.reduced.outer_offsets(r)[0], run, axes.reduced.inner_stride(0),
                         [](double u) { return u; });
      put(y.mode, y.as<T>()[i], a * sum);
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
