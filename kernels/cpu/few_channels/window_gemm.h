// A single-threaded GEMM whose left operand overlaps itself: the windows of a row of pixels.
#pragma once

#include <cstdint>

#include "convoy/kernels/cpu/primitives/simd.h"

namespace convoy::kernels::few_channels {

using simd::kLanes;
using simd::Vec;

/// The numbers of terms of each sum: c = sum over j < outer and k < inner of a(j, k) b(j, k).
struct Terms {
  std::int64_t outer, inner;
};

/// The left operand. The term (j, k) of row r is data[r * row + j * outer + k * inner].
struct Windows {
  const float* data;
  std::int64_t row, outer, inner;  // distances in floats
};

/// The right operand. The row of the term (j, k) begins at data[j * outer + k * inner]. Its columns are contiguous.
struct Columns {
  const float* data;
  std::int64_t outer, inner;
};

constexpr int kMaxVectors = 2;  // width of a register block of c

/// Returns the number of rows of a register block that is `vectors` wide. One register holds the element of the left
/// operand, and `vectors` hold those of the right one.
constexpr int block_rows(int vectors) {
  const int fit = (simd::kRegisters - vectors - 1) / vectors;
  return fit < 14 ? fit : 14;
}

/// Computes a register block: c [Rows, Vectors * kLanes] = a b, or c += a b if `add`. Adds the terms in the order of
/// (j, k).
template <int Rows, int Vectors>
void multiply_block(Terms terms, Windows a, Columns b, float* c, std::int64_t c_stride, bool add) {
  Vec sums[Rows][Vectors];
#pragma GCC unroll 14
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 2
    for (int vector = 0; vector < Vectors; ++vector) {
      sums[row][vector] = Vec{};
      if (add) simd::load(c + row * c_stride + vector * kLanes, sums[row][vector]);
    }
  for (std::int64_t j = 0; j < terms.outer; ++j) {
    const float* left = a.data + j * a.outer;
    const float* right = b.data + j * b.outer;
    for (std::int64_t k = 0; k < terms.inner; ++k, left += a.inner, right += b.inner) {
      Vec columns[Vectors];
#pragma GCC unroll 2
      for (int vector = 0; vector < Vectors; ++vector) simd::load(right + vector * kLanes, columns[vector]);
#pragma GCC unroll 14
      for (int row = 0; row < Rows; ++row) {
        const float value = left[row * a.row];
#pragma GCC unroll 2
        for (int vector = 0; vector < Vectors; ++vector) sums[row][vector] += value * columns[vector];
      }
    }
  }
#pragma GCC unroll 14
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 2
    for (int vector = 0; vector < Vectors; ++vector)
      simd::store(c + row * c_stride + vector * kLanes, sums[row][vector]);
}

/// Calls multiply_block() with `rows` (1 to MaxRows) as a compile-time constant.
template <int MaxRows, int Vectors, class... Arguments>
void multiply_some_rows(std::int64_t rows, const Arguments&... arguments) {
  if (rows == MaxRows) {
    multiply_block<MaxRows, Vectors>(arguments...);
  } else if constexpr (MaxRows > 1) {
    multiply_some_rows<MaxRows - 1, Vectors>(rows, arguments...);
  }
}

/// Computes all rows of c in register blocks of nearly equal height.
template <int Vectors>
void multiply_rows(std::int64_t rows, Terms terms, Windows a, Columns b, float* c, std::int64_t c_stride,
                   bool add) {
  constexpr int kRows = block_rows(Vectors);
  const std::int64_t blocks = (rows + kRows - 1) / kRows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = rows * block / blocks;
    multiply_some_rows<kRows, Vectors>(rows * (block + 1) / blocks - first, terms,
                                       Windows{a.data + first * a.row, a.row, a.outer, a.inner}, b,
                                       c + first * c_stride, c_stride, add);
  }
}

/// Computes c [rows, columns] = a b, or c += a b if `add`. `columns` is a multiple of kLanes. Adds the terms of each
/// sum in the order of (j, k), whatever the sizes.
inline void multiply(std::int64_t rows, std::int64_t columns, Terms terms, Windows a, Columns b, float* c,
                     std::int64_t c_stride, bool add) {
  std::int64_t column = 0;
  for (; column + kMaxVectors * kLanes <= columns; column += kMaxVectors * kLanes)
    multiply_rows<kMaxVectors>(rows, terms, a, {b.data + column, b.outer, b.inner}, c + column, c_stride,
                               add);
  if (column < columns)
    multiply_rows<1>(rows, terms, a, {b.data + column, b.outer, b.inner}, c + column, c_stride, add);
}

}  // namespace convoy::kernels::few_channels
