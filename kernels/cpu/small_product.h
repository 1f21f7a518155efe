// Products of matrices that lie in a cache already, as steps of a larger algorithm: no packing, no threads.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/runtime/simd.h"

namespace convoy::simd {

/// Element (row, k) of a factor lies at data[row * row_stride + k * k_stride].
struct LeftFactor {
  const float* data;
  std::int64_t row_stride, k_stride;
};

/// Row k begins at data + k * k_stride; its columns are contiguous.
struct RightFactor {
  const float* data;
  std::int64_t k_stride;
};

// A block of the product lies in registers while its terms are added up: some rows, and columns of whole
// vectors. One step of that loads a row of the right factor's block, and each element of the left one's
// column into all lanes of one register more. Wide blocks load less for the same products.
constexpr int kBlockColumns = kRegisters >= 32 ? 4 : 2;  // vectors, at most
constexpr int rows_at_once(int columns) {
  const int fit = (kRegisters - columns - 2) / columns;
  return fit < 14 ? fit : 14;
}

/// So many terms at once that their part of the right factor stays in the nearest cache for all rows.
constexpr std::int64_t kTermsAtOnce = 64;

/// What each term asks the memory for ahead of its use, from `soon` on: a cache line.
constexpr std::int64_t kAheadATerm = 64 / sizeof(float);

template <int Rows, int Columns>
void multiply_block(std::int64_t terms, LeftFactor a, RightFactor b, float* c, std::int64_t c_stride,
                    bool add, const float* soon) {
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
  for (std::int64_t k = 0; k < terms; ++k) {
    __builtin_prefetch(soon + k * kAheadATerm);
    Vec of_b[Columns];
#pragma GCC unroll 4
    for (int column = 0; column < Columns; ++column)
      load(b.data + k * b.k_stride + column * kLanes, of_b[column]);
#pragma GCC unroll 16
    for (int row = 0; row < Rows; ++row) {
      const float of_a = a.data[row * a.row_stride + k * a.k_stride];
#pragma GCC unroll 4
      for (int column = 0; column < Columns; ++column) sums[row][column] += of_a * of_b[column];
    }
  }
#pragma GCC unroll 16
  for (int row = 0; row < Rows; ++row)
#pragma GCC unroll 4
    for (int column = 0; column < Columns; ++column)
      store(c + row * c_stride + column * kLanes, sums[row][column]);
}

/// multiply_block of 1 to `Most` rows.
template <int Most, int Columns, class... Arguments>
void multiply_some_rows(std::int64_t rows, const Arguments&... arguments) {
  if (rows == Most) {
    multiply_block<Most, Columns>(arguments...);
  } else if constexpr (Most > 1) {
    multiply_some_rows<Most - 1, Columns>(rows, arguments...);
  }
}

/// Blocks of nearly the same height: what a few rows load for their products takes longer than these.
template <int Columns>
void multiply_rows(std::int64_t rows, std::int64_t terms, LeftFactor a, RightFactor b, float* c,
                   std::int64_t c_stride, bool add, const float* soon) {
  constexpr int kMost = rows_at_once(Columns);
  const std::int64_t blocks = (rows + kMost - 1) / kMost;
  for (std::int64_t block = 0; block < blocks; ++block) {
    const std::int64_t first = rows * block / blocks;
    multiply_some_rows<kMost, Columns>(rows * (block + 1) / blocks - first, terms,
                                       LeftFactor{a.data + first * a.row_stride, a.row_stride, a.k_stride}, b,
                                       c + first * c_stride, c_stride, add,
                                       soon + block * terms * kAheadATerm);
  }
}

template <int Columns = kBlockColumns>
void multiply_columns(std::int64_t columns, std::int64_t rows, std::int64_t terms, LeftFactor a,
                      RightFactor b, float* c, std::int64_t c_stride, bool add) {
  if (columns == Columns * kLanes) {
    // The right factor's next rows, which mostly lie behind these: while all of the left one's rows are
    // multiplied by these there is time for them to arrive.
    multiply_rows<Columns>(rows, terms, a, b, c, c_stride, add, b.data + terms * b.k_stride);
  } else if constexpr (Columns > 1) {
    multiply_columns<Columns - 1>(columns, rows, terms, a, b, c, c_stride, add);
  }
}

/// c [rows, columns] = a b, or +=: each sum in the order of its terms. `columns`: of 1 to kBlockColumns
/// vectors.
inline void multiply_panel(std::int64_t rows, std::int64_t columns, std::int64_t terms, LeftFactor a,
                           RightFactor b, float* c, std::int64_t c_stride, bool add) {
  for (std::int64_t done = 0; done < terms; done += kTermsAtOnce)
    multiply_columns(columns, rows, std::min(kTermsAtOnce, terms - done),
                     {a.data + done * a.k_stride, a.row_stride, a.k_stride},
                     {b.data + done * b.k_stride, b.k_stride}, c, c_stride, add || done > 0);
}

}  // namespace convoy::simd
