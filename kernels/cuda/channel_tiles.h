// Work on x [rows, channels], channels last: which thread takes which elements, and sums over the rows of
// each channel, in an order that the shape alone fixes.
#pragma once

#include <algorithm>
#include <bit>

#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"

namespace convoy::cuda {

inline constexpr int kChannelBlock = 256;  // threads: whole warps, and several blocks fit an SM
/// 128 bytes side by side in 16-byte packs: a cache line. Fewer only where there are fewer channels.
inline constexpr int kLeastLanes = 8;
inline constexpr int kMostLanes = 32;
inline constexpr int kRowsOfThread = 8;  // at least, to repay what a thread reads for each channel

/// Blocks of a reduction: about as many as 132 SMs hold at once, few enough for their partial sums to be
/// small beside x (2 values a channel from at least 64 rows).
inline constexpr int kReductionBlocks = 1024;
/// Blocks of an elementwise pass: many waves, so that the last, uneven one matters little.
inline constexpr int kMapBlocks = 8192;

/// A grid of blocks over x: `tiles` of them cover the channels, `row_blocks` the rows. Within a block,
/// `lanes` threads stand side by side along the channels, each on one pack; the others take further rows.
struct ChannelTiling {
  std::int64_t rows, channels;
  int lanes;  // a power of two
  int tiles, row_blocks;
  std::int64_t block_rows;

  unsigned blocks() const { return static_cast<unsigned>(tiles) * static_cast<unsigned>(row_blocks); }
};

/// A function of the shape and the width of a pack alone, and so is the order of all sums. Not for empty x.
inline ChannelTiling tile_channels(std::int64_t rows, std::int64_t channels, int width, int most_blocks) {
  const auto pieces = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  const std::int64_t packs = pieces(channels, width);
  const auto standing = [&](std::int64_t lanes) { return pieces(packs, lanes) * lanes; };
  std::int64_t lanes = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(packs, kMostLanes))));
  while (lanes > kLeastLanes && standing(lanes / 2) < standing(lanes)) lanes /= 2;  // fewer stand idle
  const std::int64_t tiles = pieces(packs, lanes);
  const std::int64_t most_row_blocks = std::max<std::int64_t>(1, most_blocks / tiles);
  const std::int64_t unit = kChannelBlock / lanes * kRowsOfThread;  // whole groups of rows in flight
  const std::int64_t block_rows = pieces(pieces(rows, most_row_blocks), unit) * unit;
  return {rows,
          channels,
          static_cast<int>(lanes),
          static_cast<int>(tiles),
          static_cast<int>(pieces(rows, block_rows)),
          block_rows};
}

/// Of one thread: its channels, and its rows first, first + apart, … below end.
struct ChannelPlace {
  std::int64_t channel;  // the first of its pack
  bool has_channels;
  int row_block, rows_of_block;
  int row;    // in the block: 0 … apart - 1
  int apart;  // rows that the block takes at once
  std::int64_t first, end;

  __device__ ChannelPlace(const ChannelTiling& tiling, int width) {
    const int lane = static_cast<int>(threadIdx.x) & (tiling.lanes - 1);
    // Tiles of the same rows are neighbours in time, as they are in memory.
    const int tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(tiling.tiles));
    row_block = static_cast<int>(blockIdx.x / static_cast<unsigned>(tiling.tiles));
    channel = (std::int64_t{tile} * tiling.lanes + lane) * width;
    has_channels = channel < tiling.channels;
    row = static_cast<int>(threadIdx.x) / tiling.lanes;
    apart = kChannelBlock / tiling.lanes;
    const std::int64_t begin = row_block * tiling.block_rows;
    end = std::min(begin + tiling.block_rows, tiling.rows);
    rows_of_block = static_cast<int>(end - begin);
    first = begin + row;
  }
};

/// Calls f(std::integral_constant<int, n>, row) for the thread's rows `row`, row + apart, … (n of them):
/// kRows at once, whose loads wait for memory together, and the last ones alone.
template <int kRows, class F>
__device__ void for_row_groups(const ChannelPlace& place, const F& f) {
  static_assert(kRowsOfThread % kRows == 0);
  if (!place.has_channels) return;
  std::int64_t row = place.first;
  for (; row + (kRows - 1) * place.apart < place.end; row += kRows * place.apart)
    f(std::integral_constant<int, kRows>{}, row);
  for (; row < place.end; row += place.apart) f(std::integral_constant<int, 1>{}, row);
}

/// The thread's packs of kRows rows. Loops over these are unrolled by order, so that each element is a
/// register.
template <class T, int kWidth, int kRows>
struct RowPacks {
  Pack<T, kWidth> packs[kRows];

  __device__ void load(const T* from, std::int64_t stride) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) packs[r] = load_pack<kWidth>(from + r * stride);
  }
  __device__ compute_t<T> at(int r, int i) const { return widen(packs[r].values[i]); }
};

/// kWidth neighbours of a vector [channels], in the widest loads that there are.
template <class C, int kWidth>
struct ChannelValues {
  C values[kWidth];

  ChannelValues() = default;
  __device__ explicit ChannelValues(const C* from) {
    constexpr int kPart = std::min(kWidth, kVectorWidth<C>);
#pragma unroll
    for (int part = 0; part < kWidth; part += kPart) {
      const Pack<C, kPart> pack = load_pack<kPart>(from + part);
#pragma unroll
      for (int i = 0; i < kPart; ++i) values[part + i] = pack.values[i];
    }
  }
  __device__ C operator[](int i) const { return values[i]; }
};

/// Two sums (or two moments) for each of a thread's channels.
template <class C, int kWidth>
struct ChannelPairs {
  C first[kWidth]{};
  C second[kWidth]{};
};

/// What reduce_rows needs of shared memory; neighbouring threads have neighbouring banks.
template <class C, int kWidth>
struct RowTree {
  C first[kWidth][kChannelBlock];
  C second[kWidth][kChannelBlock];
};

/// Combines the pairs of the threads of each lane, to the thread whose row is 0, as a binary tree: at each
/// level, rows [0, level) take those of rows [level, 2 level) by combine(level, first, second, other_first,
/// other_second). All threads call it, once a kernel: a level neither reads nor writes what another reads, so
/// one barrier each is enough.
template <class C, int kWidth, class Combine>
__device__ void reduce_rows(RowTree<C, kWidth>& tree, int lanes, ChannelPairs<C, kWidth>& mine,
                            const Combine& combine) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / lanes;
  for (int level = kChannelBlock / lanes / 2; level > 0; level /= 2) {
    if (row >= level && row < 2 * level) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        tree.first[i][thread] = mine.first[i];
        tree.second[i][thread] = mine.second[i];
      }
    }
    __syncthreads();
    if (row < level) {
      const int other = thread + level * lanes;
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        combine(level, mine.first[i], mine.second[i], tree.first[i][other], tree.second[i][other]);
    }
  }
}

struct AddPairs {
  template <class C>
  __device__ void operator()(int /*level*/, C& first, C& second, C other_first, C other_second) const {
    first += other_first;
    second += other_second;
  }
};

/// Partial results of a reduction's blocks: [row_blocks, 2, channels].
template <class C, int kWidth>
__device__ void store_partials(C* partials, const ChannelTiling& tiling, const ChannelPlace& place,
                               const ChannelPairs<C, kWidth>& pairs) {
  if (place.row != 0 || !place.has_channels) return;
  C* const first = partials + 2 * place.row_block * tiling.channels + place.channel;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    first[i] = pairs.first[i];
    first[tiling.channels + i] = pairs.second[i];
  }
}

inline std::size_t partial_values(const ChannelTiling& tiling) {
  return static_cast<std::size_t>(2 * tiling.row_blocks * tiling.channels);
}

/// Channels of a block of a kernel that sums partials: a sector of 32 bytes of each row of them.
inline constexpr int kFinalLanes = 8;
using FinalTree = RowTree<double, 1>;

/// The channel of a thread in such a kernel, launched with blocks_for(channels, kFinalLanes) blocks of
/// kChannelBlock threads.
__device__ inline std::int64_t final_channel() {
  return std::int64_t{blockIdx.x} * kFinalLanes + threadIdx.x % kFinalLanes;
}
/// Whether this thread has its channel's sums.
__device__ inline bool is_final_thread(std::int64_t channels) {
  return threadIdx.x < kFinalLanes && final_channel() < channels;
}

/// Sums term(row block, first, second) over the row blocks, in f64.
template <class C, class Term>
__device__ ChannelPairs<double, 1> sum_partials(FinalTree& tree, const C* partials, int row_blocks,
                                                std::int64_t channels, const Term& term) {
  const std::int64_t channel = final_channel();
  ChannelPairs<double, 1> sums;
  if (channel < channels) {
#pragma unroll 4
    for (int block = static_cast<int>(threadIdx.x) / kFinalLanes; block < row_blocks;
         block += kChannelBlock / kFinalLanes) {
      const C* const from = partials + 2 * block * channels + channel;
      const ChannelPairs<double, 1> one =
          term(block, static_cast<double>(from[0]), static_cast<double>(from[channels]));
      sums.first[0] += one.first[0];
      sums.second[0] += one.second[0];
    }
  }
  reduce_rows(tree, kFinalLanes, sums, AddPairs{});
  return sums;
}

/// Calls f(std::integral_constant<int, width>) with the width of packs of T: the widest where each row begins
/// where one may (`aligned` says that of the arrays), else 1.
template <class T, class F>
void choose_width(std::int64_t channels, bool aligned, const F& f) {
  if (aligned && channels % kVectorWidth<T> == 0) {
    f(std::integral_constant<int, kVectorWidth<T>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

}  // namespace convoy::cuda
