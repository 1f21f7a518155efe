// A single-threaded GEMM of f32 for operands that are already in the cache, as a step of a larger algorithm. Rows of the
// left operand may overlap, such as the windows of a row of pixels.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convoy/kernels/cpu/primitives/simd.h"

namespace convoy::kernels::simd {

/// The numbers of terms of each sum: c = sum over j < outer and k < inner of a(j, k) b(j, k).
struct Terms {
  std::int64_t outer, inner;
};

/// The left operand. The term (j, k) of row r is data[r * row + j * outer + k * inner].
struct LeftOperand {
  const float* data;
  std::int64_t row, outer, inner;  // strides in floats
};

/// The right operand. The row of the term (j, k) begins at data[j * outer + k * inner]. Its columns are
/// contiguous.
struct RightOperand {
  const float* data;
  std::int64_t outer, inner;
};

/// The sums. A row begins at data[r * row], and starts with the vectors at start[r * start_row], or with
/// zeros if `start` is null. Rows may overlap: they are stored in ascending order, each in whole vectors.
struct Sums {
  float* data;
  std::int64_t row;
  const float* start = nullptr;
  std::int64_t start_row = 0;
  bool relu = false;  // store max(0, sum)

  /// Returns the sums from a row and a column on.
  Sums from(std::int64_t first, std::int64_t column) const {
    return {data + first * row + column, row, start != nullptr ? start + first * start_row + column : nullptr,
            start_row, relu};
  }
};

// A register block of the result stays in registers while its terms are accumulated: a few rows, and columns
// of whole vectors. One term loads one row of the right operand's block, and broadcasts each element of
// the left operand's column to one more register. Wide blocks need fewer loads per multiplication.
constexpr int kBlockColumns = kRegisters >= 32 ? 4 : 2;  // maximum width of a register block, in vectors

/// Returns the number of rows of a register block that is `columns` vectors wide.
constexpr int block_rows(int columns) { return std::min(14, (kRegisters - columns - 1) / columns); }

/// Floats prefetched per term: one cache line.
constexpr std::int64_t kPrefetchStep = 64 / sizeof(float);

/// Computes one register block: c [Rows, Columns vectors] = start + a b. Adds the terms in the order of (j, k).
/// Prefetches kPrefetchStep floats per term from `prefetch` on if kPrefetches.
template <bool kPrefetches, int Rows, int Columns>
void gemm_block(Terms terms, LeftOperand a, RightOperand b, Sums c, const float* prefetch) {
  Vec sums[Rows][Columns];
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 4
    for (int column = 0; column < Columns; ++column) {
      sums[row][column] = Vec{};
      if (c.start != nullptr) load(c.start + row * c.start_row + column * kLanes, sums[row][column]);
    }
  for (std::int64_t j = 0; j < terms.outer; ++j) {
    const float* left = a.data + j * a.outer;
    const float* right = b.data + j * b.outer;
    for (std::int64_t k = 0; k < terms.inner; ++k, left += a.inner, right += b.inner) {
      if constexpr (kPrefetches) __builtin_prefetch(prefetch + k * kPrefetchStep);
      Vec b_row[Columns];
#pragma GCC unroll 4
      for (int column = 0; column < Columns; ++column) load(right + column * kLanes, b_row[column]);
#pragma GCC unroll 16
      for (int row = 0; row < Rows; ++row) {
        const float a_value = left[row * a.row];
#pragma GCC unroll 4
        for (int column = 0; column < Columns; ++column) sums[row][column] += a_value * b_row[column];
      }
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 4
    for (int column = 0; column < Columns; ++column) {
      const Vec sum = sums[row][column];
      store(c.data + row * c.row + column * kLanes, c.relu ? Vec(0.0F > sum ? Vec{} : sum) : sum);
    }
}

/// Calls gemm_block() with `rows` (1 to MaxRows) as a compile-time constant.
template <bool kPrefetches, int MaxRows, int Columns, class... Arguments>
void gemm_some_rows(std::int64_t rows, const Arguments&... arguments) {
  if (rows == MaxRows) {
    gemm_block<kPrefetches, MaxRows, Columns>(arguments...);
  } else if constexpr (MaxRows > 1) {
    gemm_some_rows<kPrefetches, MaxRows - 1, Columns>(rows, arguments...);
  }
}

/// Computes all rows of c, whose width is `columns` (1 to Columns vectors), in register blocks of nearly equal height.
/// Blocks of only a few rows would be bound by their loads. If kPrefetches, prefetches the next rows of the right operand,
/// which usually follow these in memory. They arrive while all rows of the left operand are multiplied by the current ones.
template <bool kPrefetches, int Columns>
void gemm_rows(std::int64_t rows, std::int64_t columns, Terms terms, LeftOperand a, RightOperand b, Sums c) {
  if (columns == Columns * kLanes) {
    constexpr int kRows = block_rows(Columns);
    const std::int64_t blocks = (rows + kRows - 1) / kRows;
    for (std::int64_t block = 0; block < blocks; ++block) {
      const std::int64_t first = rows * block / blocks;
      gemm_some_rows<kPrefetches, kRows, Columns>(
          rows * (block + 1) / blocks - first, terms,
          LeftOperand{a.data + first * a.row, a.row, a.outer, a.inner}, b, c.from(first, 0),
          b.data + terms.inner * (b.inner + block * kPrefetchStep));
    }
  } else if constexpr (Columns > 1) {
    gemm_rows<kPrefetches, Columns - 1>(rows, columns, terms, a, b, c);
  }
}

}  // namespace convoy::kernels::simd
