// Helpers shared by the forward and backward batch norm on the CPU: sums over the rows of each channel, and
// loops over all elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cpu/primitives/map.h"

namespace convoy::kernels {

/// The sizes of x viewed as a matrix [rows, channels].
struct ChannelMatrix {
  std::int64_t rows, channels;
  explicit ChannelMatrix(const Shape& shape)
      : rows(shape[-1] > 0 ? shape.numel() / shape[-1] : 0), channels(shape[-1]) {}
};

/// Scratch memory of a stream's batch norms. It grows to the largest number of channels and is never shrunk.
template <class T>
struct ChannelScratch {
  explicit ChannelScratch(const CpuStream&) {}
  void resize(std::int64_t channels) {
    const auto size = static_cast<std::size_t>(channels);
    for (std::vector<double>* values : {&origin, &mean, &var, &inverse_std}) values->resize(size);
    for (std::vector<T>* factors : {&a, &b, &c}) factors->resize(size);
  }

  std::vector<double> block_sums;     // [blocks, 2, channels]
  std::vector<double> first, second;  // [channels]: results of sum_channels()
  std::vector<double> origin;         // [channels]: subtracted from x before summing
  std::vector<double> mean, var;      // [channels]: batch statistics; var is biased
  std::vector<double> inverse_std;    // [channels]
  std::vector<T> a, b, c;             // [channels]: coefficients of the elementwise pass
};

inline constexpr std::int64_t kMaxRowBlocks = 64;  // at most this many threads share a sum
inline constexpr std::int64_t kMinBlockRows = 32;
inline constexpr std::size_t kSumLanes = 16;  // channels whose f64 sums fit in vector registers
/// Rows that are summed for one group of channels before the next group. Small, so that memory is read almost
/// in order, but large enough that the sums stay in registers for a while.
inline constexpr std::int64_t kRowsAtOnce = 16;

/// Adds the rows [begin, end) of `lanes` adjacent channels from c on to `first` and `second`. terms(row, c,
/// sum1, sum2) adds the terms of one element.
template <std::size_t lanes, class Terms>
void sum_lanes(std::int64_t begin, std::int64_t end, std::int64_t c, const Terms& terms, double* first,
               double* second) {
  std::array<double, lanes> sum1;
  std::array<double, lanes> sum2;
  std::copy_n(first + c, lanes, sum1.begin());
  std::copy_n(second + c, lanes, sum2.begin());
  for (std::int64_t row = begin; row < end; ++row)
    for (std::size_t lane = 0; lane < lanes; ++lane)
      terms(row, c + static_cast<std::int64_t>(lane), sum1[lane], sum2[lane]);
  std::copy(sum1.begin(), sum1.end(), first + c);
  std::copy(sum2.begin(), sum2.end(), second + c);
}

/// Computes two sums over the rows for each channel, into scratch.first and scratch.second. Blocks of rows
/// are summed in parallel, then the blocks' sums are added in order. Blocks and order depend on the shape
/// only, so the result has the same bits for any number of threads.
template <class T, class Terms>
void sum_channels(CpuStream& stream, ChannelMatrix m, ChannelScratch<T>& scratch, const Terms& terms) {
  const std::int64_t block_rows = std::max(kMinBlockRows, (m.rows + kMaxRowBlocks - 1) / kMaxRowBlocks);
  const std::int64_t blocks = (m.rows + block_rows - 1) / block_rows;
  scratch.block_sums.resize(static_cast<std::size_t>(blocks * 2 * m.channels));
  parallel_for(stream, blocks, item_grain(block_rows * m.channels),
               [&](std::int64_t first_block, std::int64_t last_block) {
                 for (std::int64_t block = first_block; block < last_block; ++block) {
                   double* first = scratch.block_sums.data() + block * 2 * m.channels;
                   double* second = first + m.channels;
                   std::fill_n(first, 2 * m.channels, 0.0);
                   const std::int64_t end = std::min((block + 1) * block_rows, m.rows);
                   for (std::int64_t row = block * block_rows; row < end; row += kRowsAtOnce) {
                     const std::int64_t last = std::min(row + kRowsAtOnce, end);
                     std::int64_t c = 0;
                     for (; c + static_cast<std::int64_t>(kSumLanes) <= m.channels; c += kSumLanes)
                       sum_lanes<kSumLanes>(row, last, c, terms, first, second);
                     for (; c < m.channels; ++c) sum_lanes<1>(row, last, c, terms, first, second);
                   }
                 }
               });
  const auto channels = static_cast<std::size_t>(m.channels);
  scratch.first.assign(channels, 0.0);
  scratch.second.assign(channels, 0.0);
  for (std::size_t block = 0; block < static_cast<std::size_t>(blocks); ++block)
    for (std::size_t c = 0; c < channels; ++c) {
      scratch.first[c] += scratch.block_sums[block * 2 * channels + c];
      scratch.second[c] += scratch.block_sums[(block * 2 + 1) * channels + c];
    }
}

/// Calls f(element, channel) for every element of the rows [begin, end). f may write to an array that it
/// reads, but only at the same element. The pragma states this to the compiler, which saves an overlap check
/// per row.
template <class F>
void for_each_element(std::int64_t begin, std::int64_t end, std::int64_t channels, const F& f) {
  for (std::int64_t row = begin; row < end; ++row)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) f(row * channels + c, c);
}

/// The vector [1 + 2C] of one shard, or of several shards combined: the number of rows, then two values per
/// channel.
template <class D>
struct ShardSums {
  D *rows, *first, *second;
  ShardSums(D* values, std::int64_t channels)
      : rows(values), first(values + 1), second(values + 1 + channels) {}
};

}  // namespace convoy::kernels
