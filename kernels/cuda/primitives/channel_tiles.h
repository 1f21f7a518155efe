// Work distribution for kernels over x [rows, channels] with channels last: the assignment of elements to
// threads, and sums over the rows of each channel in a fixed order. The assignment, and with it the order of
// all sums, is a function of the shape and the element type (tile_channels()).
#pragma once

#include <algorithm>
#include <bit>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {

inline constexpr int kChannelBlock = 256;  // threads: whole warps, and several blocks fit an SM
/// 8 lanes of 16-byte packs read 128 contiguous bytes, a cache line. There are fewer lanes only if there are
/// fewer packs.
inline constexpr int kMinLanes = 8;
inline constexpr int kMaxLanes = 32;
inline constexpr int kRowsOfThread = 8;  // minimum per thread, to amortize the per-channel loads

/// Maximum number of blocks of a reduction: about as many as 132 SMs hold at once, but few enough that their
/// partial sums are small compared with x (2 values per channel for at least 64 rows).
inline constexpr int kReductionBlocks = 1024;
/// Maximum number of blocks of an elementwise pass: many waves, so that the last, partial one matters little.
inline constexpr int kMapBlocks = 8192;

/// A grid of blocks over x: `tiles` blocks cover the channels and `row_blocks` blocks cover the rows. Within
/// a block, `lanes` adjacent threads cover the channels with one pack each; the other threads take further
/// rows.
struct ChannelTiling {
  std::int64_t rows, channels;
  int lanes;  // a power of two
  int tiles, row_blocks;
  std::int64_t block_rows;

  unsigned blocks() const { return static_cast<unsigned>(tiles) * static_cast<unsigned>(row_blocks); }
};

/// Returns the tiling of x, which depends on the arguments only. `width` is the width of a pack. x must not be
/// empty.
inline ChannelTiling tile_channels(std::int64_t rows, std::int64_t channels, int width, int max_blocks) {
  const auto pieces = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  const std::int64_t packs = pieces(channels, width);
  const auto total_lanes = [&](std::int64_t lanes) { return pieces(packs, lanes) * lanes; };
  std::int64_t lanes = static_cast<std::int64_t>(
      std::bit_ceil(static_cast<std::uint64_t>(std::min<std::int64_t>(packs, kMaxLanes))));
  while (lanes > kMinLanes && total_lanes(lanes / 2) < total_lanes(lanes)) lanes /= 2;  // fewer idle lanes
  const std::int64_t tiles = pieces(packs, lanes);
  const std::int64_t max_row_blocks = std::max<std::int64_t>(1, max_blocks / tiles);
  const std::int64_t unit = kChannelBlock / lanes * kRowsOfThread;  // whole groups of rows in flight
  const std::int64_t block_rows = pieces(pieces(rows, max_row_blocks), unit) * unit;
  return {rows,
          channels,
          static_cast<int>(lanes),
          static_cast<int>(tiles),
          static_cast<int>(pieces(rows, block_rows)),
          block_rows};
}

/// The elements of one thread: one pack of channels, and the rows first, first + row_stride, … below end.
struct ThreadTile {
  std::int64_t channel;  // the first channel of the pack
  bool has_channels;
  int row_block, rows_of_block;
  int row;         // the thread's row in the block: 0 … row_stride - 1
  int row_stride;  // rows that the block processes at once
  std::int64_t first, end;

  __device__ ThreadTile(const ChannelTiling& tiling, int width) {
    const int lane = static_cast<int>(threadIdx.x) & (tiling.lanes - 1);
    // Adjacent blocks take adjacent tiles of the same rows, so that they access adjacent memory at about the
    // same time.
    const int tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(tiling.tiles));
    row_block = static_cast<int>(blockIdx.x / static_cast<unsigned>(tiling.tiles));
    channel = (std::int64_t{tile} * tiling.lanes + lane) * width;
    has_channels = channel < tiling.channels;
    row = static_cast<int>(threadIdx.x) / tiling.lanes;
    row_stride = kChannelBlock / tiling.lanes;
    const std::int64_t begin = row_block * tiling.block_rows;
    end = std::min(begin + tiling.block_rows, tiling.rows);
    rows_of_block = static_cast<int>(end - begin);
    first = begin + row;
  }
};

/// Calls f(std::integral_constant<int, n>, row) for groups of n rows of the thread: row, row + row_stride, ….
/// Groups have kRows rows, so that their loads overlap; the remaining rows form groups of one.
template <int kRows, class F>
__device__ void for_row_groups(const ThreadTile& tile, const F& f) {
  static_assert(kRowsOfThread % kRows == 0);
  if (!tile.has_channels) return;
  std::int64_t row = tile.first;
  for (; row + (kRows - 1) * tile.row_stride < tile.end; row += kRows * tile.row_stride)
    f(std::integral_constant<int, kRows>{}, row);
  for (; row < tile.end; row += tile.row_stride) f(std::integral_constant<int, 1>{}, row);
}

/// The thread's packs of kRows rows. Loops over them must be unrolled by pragma, so that each element is a
/// register.
template <class T, int kWidth, int kRows>
struct RowPacks {
  Pack<T, kWidth> packs[kRows];

  __device__ void load(const T* from, std::int64_t stride, bool is_aligned = true) {
#pragma unroll
    for (int r = 0; r < kRows; ++r) packs[r] = load_pack<kWidth>(from + r * stride, is_aligned);
  }
  __device__ compute_t<T> at(int r, int i) const { return widen(packs[r].values[i]); }
};

/// kWidth adjacent elements of a vector [channels], loaded with the widest loads.
template <class C, int kWidth>
struct ChannelValues {
  C values[kWidth];

  ChannelValues() = default;
  __device__ explicit ChannelValues(const C* from, bool is_aligned = true) {
    constexpr int kPart = std::min(kWidth, kVectorWidth<C>);
#pragma unroll
    for (int part = 0; part < kWidth; part += kPart) {
      const Pack<C, kPart> pack = load_pack<kPart>(from + part, is_aligned);
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

/// The shared memory of reduce_rows(). The index order gives adjacent threads adjacent banks.
template <class C, int kWidth>
struct RowScratch {
  C first[kWidth][kChannelBlock];
  C second[kWidth][kChannelBlock];
};

/// Combines the pairs of the threads of each lane in a binary tree; the thread whose row is 0 gets the
/// result. At each level, the threads of rows [0, level) combine their pairs with those of rows [level, 2
/// level) by combine(level, first, second, other_first, other_second). All threads must call it, at most once
/// per kernel. One barrier per level is enough, since no level reads or writes an element of `scratch` that
/// another level reads.
template <class C, int kWidth, class Combine>
__device__ void reduce_rows(RowScratch<C, kWidth>& scratch, int lanes, ChannelPairs<C, kWidth>& local,
                            const Combine& combine) {
  const int thread = static_cast<int>(threadIdx.x);
  const int row = thread / lanes;
  for (int level = kChannelBlock / lanes / 2; level > 0; level /= 2) {
    if (row >= level && row < 2 * level) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        scratch.first[i][thread] = local.first[i];
        scratch.second[i][thread] = local.second[i];
      }
    }
    __syncthreads();
    if (row < level) {
      const int other = thread + level * lanes;
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        combine(level, local.first[i], local.second[i], scratch.first[i][other], scratch.second[i][other]);
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

/// Stores the block's pairs in `partials` [row_blocks, 2, channels].
template <class C, int kWidth>
__device__ void store_partials(C* partials, const ChannelTiling& tiling, const ThreadTile& tile,
                               const ChannelPairs<C, kWidth>& pairs) {
  if (tile.row != 0 || !tile.has_channels) return;
  C* const first = partials + 2 * tile.row_block * tiling.channels + tile.channel;
  constexpr int kPart = std::min(kWidth, kVectorWidth<C>);
#pragma unroll
  for (int part = 0; part < kWidth; part += kPart) {
    Pack<C, kPart> firsts, seconds;
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      firsts.values[i] = pairs.first[part + i];
      seconds.values[i] = pairs.second[part + i];
    }
    store_pack(first + part, firsts);
    store_pack(first + tiling.channels + part, seconds);
  }
}

/// Returns the number of elements of `partials`.
inline std::size_t partial_values(const ChannelTiling& tiling) {
  return static_cast<std::size_t>(2 * tiling.row_blocks * tiling.channels);
}

/// Channels per block of a kernel that sums partials: 8 floats are a 32-byte sector of memory.
inline constexpr int kFinalLanes = 8;
using FinalScratch = RowScratch<double, 1>;

/// Returns the channel of a thread in a kernel that sums partials. Such a kernel is launched with
/// blocks_for(channels, kFinalLanes) blocks of kChannelBlock threads.
__device__ inline std::int64_t final_channel() {
  return std::int64_t{blockIdx.x} * kFinalLanes + threadIdx.x % kFinalLanes;
}
/// Returns whether sum_partials() gives its channel's sums to this thread.
__device__ inline bool is_final_thread(std::int64_t channels) {
  return threadIdx.x < kFinalLanes && final_channel() < channels;
}

/// Returns the sum of term(row block, first, second) over the row blocks, in f64 and in a fixed order. All
/// threads must call it; the result is valid if is_final_thread().
template <class C, class Term>
__device__ ChannelPairs<double, 1> sum_partials(FinalScratch& scratch, const C* partials, int row_blocks,
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
  reduce_rows(scratch, kFinalLanes, sums, AddPairs{});
  return sums;
}

/// Calls f(std::integral_constant<int, width>) with the width of packs of T: kVectorWidth<T> if rows consist of
/// such packs, otherwise 1. A kernel whose results depend on the width must not pass `aligned`, whether the
/// arrays are aligned for packs, but use it to load them.
template <class T, class F>
void choose_width(std::int64_t channels, const F& f, bool aligned = true) {
  if (aligned && channels % kVectorWidth<T> == 0) {
    f(std::integral_constant<int, kVectorWidth<T>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

}  // namespace convoy::kernels::cuda
