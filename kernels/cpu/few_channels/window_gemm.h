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
  std::int64_t row, outer, inner;  // strides in floats
};

/// The right operand. The row of the term (j, k) begins at data[j * outer + k * inner]. Its columns are
/// contiguous.
struct Columns {
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

constexpr int kMaxVectors = 2;  // width of a register block of c

/// Returns the number of rows of a register block that is `vectors` wide. One register holds the element of
/// the left operand, and `vectors` hold those of the right one.
constexpr int block_rows(int vectors) {
  const int fit = (simd::kRegisters - vectors - 1) / vectors;
  return fit < 14 ? fit : 14;
}

/// Computes a register block: c [Rows, Vectors * kLanes] = start + a b. Adds the terms in the order of (j,
/// k).
template <int Rows, int Vectors>
void multiply_block(Terms terms, Windows a, Columns b, Sums c) {
  Vec sums[Rows][Vectors];
#pragma GCC unroll 14
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 2
    for (int vector = 0; vector < Vectors; ++vector) {
      sums[row][vector] = Vec{};
      if (c.start != nullptr) simd::load(c.start + row * c.start_row + vector * kLanes, sums[row][vector]);
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
    for (int vector = 0; vector < Vectors; ++vector) {
      const Vec sum = sums[row][vector];
      simd::store(c.data + row * c.row + vector * kLanes, c.relu ? Vec(0.0F > sum ? Vec{} : sum) : sum);
    }
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
void multiply_rows(std::int64_t rows, Terms terms, Windows a, Columns b, Sums c) {
  constexpr int kRows = block_rows(Vectors);
  const std::int64_t blocks = (rows + kRows - 1) / kRows;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = rows * block / blocks;
    multiply_some_rows<kRows, Vectors>(rows * (block + 1) / blocks - first, terms,
                                       Windows{a.data + first * a.row, a.row, a.outer, a.inner}, b,
                                       c.from(first, 0));
  }
}

/// Computes c [rows, columns] = start + a b. `columns` is a multiple of kLanes. Adds the terms of each sum in
/// the order of (j, k), whatever the sizes.
inline void multiply(std::int64_t rows, std::int64_t columns, Terms terms, Windows a, Columns b, Sums c) {
  std::int64_t column = 0;
  for (; column + kMaxVectors * kLanes <= columns; column += kMaxVectors * kLanes)
    multiply_rows<kMaxVectors>(rows, terms, a, {b.data + column, b.outer, b.inner}, c.from(0, column));
  if (column < columns)
    multiply_rows<1>(rows, terms, a, {b.data + column, b.outer, b.inner}, c.from(0, column));
}

}  // namespace convoy::kernels::few_channels
