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

template <int Rows, int Columns>
void multiply_block(std::int64_t terms, LeftFactor a, RightFactor b, float* c, std::int64_t c_stride,
                    bool add) {
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

template <int Columns, int Rows = rows_at_once(Columns)>
void multiply_rows(std::int64_t rows, std::int64_t terms, LeftFactor a, RightFactor b, float* c,
                   std::int64_t c_stride, bool add) {
  for (; rows >= Rows; rows -= Rows) {
    multiply_block<Rows, Columns>(terms, a, b, c, c_stride, add);
    a.data += Rows * a.row_stride;
    c += Rows * c_stride;
  }
  if constexpr (Rows > 1) {
    if (rows > 0) multiply_rows<Columns, Rows / 2>(rows, terms, a, b, c, c_stride, add);
  }
}

template <int Columns = kBlockColumns>
void multiply_columns(std::int64_t columns, std::int64_t rows, std::int64_t terms, LeftFactor a,
                      RightFactor b, float* c, std::int64_t c_stride, bool add) {
  if (columns == Columns * kLanes) {
    multiply_rows<Columns>(rows, terms, a, b, c, c_stride, add);
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
