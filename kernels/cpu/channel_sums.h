// What the two directions of batch norm share on the CPU: sums over the rows of each channel, and loops over
// all elements.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "kernels/batchnorm.h"
#include "kernels/cpu/map.h"

namespace convoy {

/// x as [rows, channels].
struct ChannelMatrix {
  std::int64_t rows, channels;
  explicit ChannelMatrix(const Shape& shape)
      : rows(shape[-1] > 0 ? shape.numel() / shape[-1] : 0), channels(shape[-1]) {}
};

/// What a stream's batch norms need besides their arguments; grows to the largest number of channels and
/// stays.
template <class T>
struct ChannelScratch {
  explicit ChannelScratch(const CpuStream&) {}
  void resize(std::int64_t channels) {
    const auto size = static_cast<std::size_t>(channels);
    for (std::vector<double>* values : {&origin, &mean, &var, &inverse_std}) values->resize(size);
    for (std::vector<T>* factors : {&a, &b, &c}) factors->resize(size);
  }

  std::vector<double> block_sums;     // [blocks, 2, channels]
  std::vector<double> first, second;  // [channels]: the two sums
  std::vector<double> origin;         // [channels]: what x is measured from
  std::vector<double> mean, var;      // [channels]: of the batch, var biased
  std::vector<double> inverse_std;    // [channels]
  std::vector<T> a, b, c;             // [channels]: factors of the elementwise pass
};

inline constexpr std::int64_t kMostRowBlocks = 64;  // of rows: work for as many threads
inline constexpr std::int64_t kLeastBlockRows = 32;
inline constexpr std::size_t kSumLanes = 16;  // channels whose f64 sums fit the vector registers
// Rows that are read for some channels before the next ones' turn: few, so that memory is read nearly in
// order, and enough that what is added to waits in registers.
inline constexpr std::int64_t kRowsAtOnce = 16;

/// Adds the rows [begin, end) of `lanes` neighbouring channels; terms(row, c, sum1, sum2) adds those of one
/// element.
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

/// Two sums over the rows for each channel, to scratch.first and .second. Blocks of rows are summed in
/// parallel, then one after the other; blocks and order depend on the shape alone, and so do all bits of the
/// result.
template <class T, class Terms>
void sum_channels(CpuStream& stream, ChannelMatrix m, ChannelScratch<T>& scratch, const Terms& terms) {
  const std::int64_t block_rows = std::max(kLeastBlockRows, (m.rows + kMostRowBlocks - 1) / kMostRowBlocks);
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

/// Calls f(element, channel) for every element of the rows [begin, end). What f writes may be what it reads,
/// but never at another element: the pragma spares each short row the question.
template <class F>
void for_each_element(std::int64_t begin, std::int64_t end, std::int64_t channels, const F& f) {
  for (std::int64_t row = begin; row < end; ++row)
#pragma GCC ivdep
    for (std::int64_t c = 0; c < channels; ++c) f(row * channels + c, c);
}

/// Calls f(std::true_type or std::false_type): what is chosen once a call costs the loops in it nothing.
template <class F>
void choose(bool flag, const F& f) {
  if (flag) {
    f(std::true_type{});
  } else {
    f(std::false_type{});
  }
}

/// Of one part, or of several together: [1 + 2C].
template <class D>
struct PartSums {
  D *rows, *first, *second;
  PartSums(D* values, std::int64_t channels)
      : rows(values), first(values + 1), second(values + 1 + channels) {}
};

}  // namespace convoy
