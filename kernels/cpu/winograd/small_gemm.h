// A single-threaded GEMM without packing, for matrices that are already in the cache, as a step of a larger
// algorithm.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convoy/kernels/cpu/primitives/simd.h"

namespace convoy::kernels::simd {

/// The left operand [rows, depth] of a GEMM. Element (row, k) is data[row * row_stride + k * k_stride].
struct LeftOperand {
  const float* data;
  std::int64_t row_stride, k_stride;
};

/// The right operand [depth, columns] of a GEMM. Row k begins at data + k * k_stride; its columns are
/// contiguous.
struct RightOperand {
  const float* data;
  std::int64_t k_stride;
};

// A register block of the result stays in registers while its terms are accumulated: a few rows, and columns
// of whole vectors. One step of k loads one row of the right operand's block, and broadcasts each element of
// the left operand's column to one more register. Wide blocks need fewer loads per multiplication.
constexpr int kBlockColumns = kRegisters >= 32 ? 4 : 2;  // maximum width of a register block, in vectors

/// Returns the number of rows of a register block that is `columns` vectors wide.
constexpr int block_rows(int columns) {
  const int fit = (kRegisters - columns - 2) / columns;
  return fit < 14 ? fit : 14;
}

/// Steps of k per pass: this many rows of the right operand stay in the L1 cache while all rows of c are
/// computed.
constexpr std::int64_t kDepthBlock = 64;

/// Floats prefetched per step of k: one cache line.
constexpr std::int64_t kPrefetchStep = 64 / sizeof(float);

/// Computes one register block of c [Rows, Columns vectors] = a b, or += if `add`. Prefetches depth *
/// kPrefetchStep floats from `prefetch` on.
template <int Rows, int Columns>
void gemm_block(std::int64_t depth, LeftOperand a, RightOperand b, float* c, std::int64_t c_stride, bool add,
                const float* prefetch) {
  Vec sums[Rows][Columns];
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 4
    for (int column = 0; column < Columns; ++column) {
      if (add) {
        load(c + row * c_stride + column * kLanes, sums[row][column]);
      } else {
        sums[row][column] = Vec{};
      }
    }
  for (std::int64_t k = 0; k < depth; ++k) {
    __builtin_prefetch(prefetch + k * kPrefetchStep);
    Vec b_row[Columns];
#pragma GCC unroll 4
    for (int column = 0; column < Columns; ++column)
      load(b.data + k * b.k_stride + column * kLanes, b_row[column]);
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row) {
      const float a_value = a.data[row * a.row_stride + k * a.k_stride];
#pragma GCC unroll 4
      for (int column = 0; column < Columns; ++column) sums[row][column] += a_value * b_row[column];
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 4
    for (int column = 0; column < Columns; ++column)
      store(c + row * c_stride + column * kLanes, sums[row][column]);
}

/// Calls gemm_block() with `rows` (1 to MaxRows) as a compile-time constant.
template <int MaxRows, int Columns, class... Arguments>
void gemm_some_rows(std::int64_t rows, const Arguments&... arguments) {
  if (rows == MaxRows) {
    gemm_block<MaxRows, Columns>(arguments...);
  } else if constexpr (MaxRows > 1) {
    gemm_some_rows<MaxRows - 1, Columns>(rows, arguments...);
  }
}

/// Computes all rows of c in register blocks of nearly equal height. Blocks of only a few rows would be bound
/// by their loads.
template <int Columns>
void gemm_rows(std::int64_t rows, std::int64_t depth, LeftOperand a, RightOperand b, float* c,
               std::int64_t c_stride, bool add, const float* prefetch) {
  constexpr int kRows = block_rows(Columns);
  const std::int64_t blocks = (rows + kRows - 1) / kRows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = rows * block / blocks;
    gemm_some_rows<kRows, Columns>(rows * (block + 1) / blocks - first, depth,
                                   LeftOperand{a.data + first * a.row_stride, a.row_stride, a.k_stride}, b,
                                   c + first * c_stride, c_stride, add,
                                   prefetch + block * depth * kPrefetchStep);
  }
}

/// Calls gemm_rows() with the width `columns` (1 to Columns vectors) as a compile-time constant.
template <int Columns = kBlockColumns>
void gemm_columns(std::int64_t columns, std::int64_t rows, std::int64_t depth, LeftOperand a, RightOperand b,
                  float* c, std::int64_t c_stride, bool add) {
  if (columns == Columns * kLanes) {
    // Prefetches the next rows of the right operand, which usually follow these in memory. They arrive while
    // all rows of the left operand are multiplied by the current ones.
    gemm_rows<Columns>(rows, depth, a, b, c, c_stride, add, b.data + depth * b.k_stride);
  } else if constexpr (Columns > 1) {
    gemm_columns<Columns - 1>(columns, rows, depth, a, b, c, c_stride, add);
  }
}

/// Computes c [rows, columns] = a b, or c += a b if `add`. The terms of each sum are added in the order of k.
/// `columns` must be the width of 1 to kBlockColumns vectors. `depth` is the number of columns of a and rows
/// of b.
inline void gemm_panel(std::int64_t rows, std::int64_t columns, std::int64_t depth, LeftOperand a,
                       RightOperand b, float* c, std::int64_t c_stride, bool add) {
  for (std::int64_t done = 0; done < depth; done += kDepthBlock)
    gemm_columns(columns, rows, std::min(kDepthBlock, depth - done),
                 {a.data + done * a.k_stride, a.row_stride, a.k_stride},
                 {b.data + done * b.k_stride, b.k_stride}, c, c_stride, add || done > 0);
}

}  // namespace convoy::kernels::simd
