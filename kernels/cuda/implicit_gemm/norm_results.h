// The result of a block, if a batch norm follows the convolution (forward) or precedes it (backward).
#pragma once

#include "convoy/kernels/cuda/implicit_gemm/column_sums.h"
#include "convoy/kernels/cuda/implicit_gemm/input_norm.h"
#include "convoy/kernels/cuda/implicit_gemm/result.h"
#include "convoy/kernels/cuda/normalization/batch_statistics.h"
#include "convoy/kernels/cuda/normalization/gradient_rules.h"

namespace convoy::kernels::implicit_gemm {

/// The place of ColumnScratch: after the tile of store(), in the memory of the smallest images.
template <int kPixels>
__device__ ColumnScratch& column_scratch(unsigned char* tile) {
  constexpr int kTileBytes = kPixels * kWideRow;
  constexpr int kSmallestHalo = 2;
  static_assert(kTileBytes + sizeof(ColumnScratch) <=
                kStages * kFilterBytes + 2 * (kZeroRows + kPixels + 2 * kSmallestHalo) * kNarrowRow);
  return *reinterpret_cast<ColumnScratch*>(tile + kTileBytes);
}

/// Forward: the statistics of the result, and the normalization of the input. Each of the two is optional.
template <class T>
struct ForwardNorm {
  NormCoefficients input;
  ColumnPartials partials;  // a block's sum of y, and its sum of squared differences from its mean
  cuda::Statistics<T> statistics;
};

/// Stores the sums of the block like store(). Computes the moments of the rounded values, in two passes over
/// shared memory.
///
/// A partial result has the sum and not the mean, because the sum is exact in f32 where the mean is much
/// larger than the deviation: 256 values of at most 11 bits, with one exponent, have a sum of 19 bits.
template <int kPixels, class T, int kTiles>
__device__ void store_with_moments(const Geometry& g, const BlockPart& part, const Sums<kTiles>& sums,
                                   unsigned char* tile, T* out, const ForwardNorm<T>& norm) {
  store(g, part.rows, GradMode::overwrite, sums, tile, out);
  if (norm.partials.of_blocks == nullptr) return;
  ColumnScratch& scratch = column_scratch<kPixels>(tile);
  const int thread = static_cast<int>(threadIdx.x), chunk = thread % kChunks;
  const auto for_each_row = [&](auto&& f) {
#pragma unroll 4
    for (int row = thread / kChunks; row < part.rows; row += kRowsAtOnce)
      f(cuda::load_pack<kPack>(reinterpret_cast<const T*>(tile + wide_offset(row, chunk))));
  };
  float total[kPack] = {}, mean[kPack], squares[kPack] = {};
  for_each_row([&](const cuda::Pack<T, kPack>& y) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) total[i] += cuda::widen(y.values[i]);
  });
  sum_rows(total, scratch.sums[0]);
#pragma unroll
  for (int i = 0; i < kPack; ++i) mean[i] = total[i] / static_cast<float>(part.rows);
  for_each_row([&](const cuda::Pack<T, kPack>& y) {
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float difference = cuda::widen(y.values[i]) - mean[i];
      squares[i] += difference * difference;
    }
  });
  sum_rows(squares, scratch.sums[1]);

  combine_columns<CombineMoments, kPixels>(norm.partials, part, g.pixels, total, squares, tile,
                                           scratch.is_last, [&](int channel, const ColumnPair& moments) {
                                             const double n = g.pixels;
                                             norm.statistics.set(channel, n, moments.first / n,
                                                                 moments.second / n);
                                           });
}

/// Backward: the gradient g of the value before the ReLU, and its sums. x [pixels, outputs] is the input of
/// the batch norm.
template <class T>
struct BackwardNorm {
  const T* x;
  NormCoefficients norm;
  ColumnPartials partials;  // a block's sums of g and of g (x - mean)
  cuda::GradientRules<float> rules;
};

/// Stores the sums of the block, rounded to T, or 0 where the ReLU's input max(normalized(x), 0) is not
/// positive. `x` is the block's first element. Loads x before the tile is built, so that the latencies
/// overlap.
template <int kPixels, class T, int kTiles>
__device__ void store_masked(const Geometry& g, const BlockPart& part, const Sums<kTiles>& sums,
                             unsigned char* tile, T* out, const T* x, const BackwardNorm<T>& norm) {
  constexpr int kRows = kPixels / kRowsAtOnce;  // of a thread
  ColumnScratch& scratch = column_scratch<kPixels>(tile);
  const int thread = static_cast<int>(threadIdx.x), chunk = thread % kChunks, first_row = thread / kChunks;
  const std::int64_t first = std::int64_t{first_row} * g.outputs + chunk * kPack;
  const std::int64_t stride = std::int64_t{kRowsAtOnce} * g.outputs;
  cuda::Pack<T, kPack> data[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (first_row + r * kRowsAtOnce < part.rows) data[r] = cuda::load_pack<kPack>(x + first + r * stride);
  collect(g, part.rows, GradMode::overwrite, sums, tile, out);
  const PackNorm coefficients(norm.norm, part.first_column() + chunk * kPack);
  __syncthreads();
  float sum[kPack] = {}, dot[kPack] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = first_row + r * kRowsAtOnce;
    if (row >= part.rows) break;
    auto gradient = cuda::load_pack<kPack>(reinterpret_cast<const T*>(tile + wide_offset(row, chunk)));
#pragma unroll
    for (int i = 0; i < kPack; ++i) {
      const float value = cuda::widen(data[r].values[i]);
      if (!cuda::is_positive<T>(coefficients.of(i, value))) gradient.values[i] = T{};
      sum[i] += cuda::widen(gradient.values[i]);
      dot[i] += cuda::widen(gradient.values[i]) * (value - coefficients.means[i]);
    }
    cuda::store_pack(out + first + r * stride, gradient);
  }
  sum_rows(sum, scratch.sums[0]);
  sum_rows(dot, scratch.sums[1]);
  combine_columns<AddSums, kPixels>(norm.partials, part, g.pixels, sum, dot, tile, scratch.is_last,
                                    [&](int channel, const ColumnPair& all) {
                                      norm.rules.put(channel, g.outputs, g.pixels, all.first, all.second);
                                    });
}

}  // namespace convoy::kernels::implicit_gemm
