// Work distribution for kernels over x [rows, channels] with channels last: the assignment of elements to
// threads, and sums over the rows of each channel in a fixed order (channel_sums.h). The assignment, and with
// it the order of all sums, is a function of the shape and the element type (tile_channels()).
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

/// The bounds of a tiling: the maximum number of blocks, the maximum number of lanes if packs have more than
/// one element, and the minimum number of rows of a thread.
struct TilingBounds {
  int blocks, lanes, thread_rows;
};
/// A pass that sums rows. Two blocks for each of 132 SMs: one wave, and few partial results, since the last
/// block of a tile reads all of the tile's (channel_sums.h). Tiles are as narrow as a cache line, so that
/// they have several last blocks, which run at the same time. A thread with 4 rows loads them together.
inline constexpr int kReductionBlocksOfSm = 2;
inline constexpr TilingBounds kReduction{
    .blocks = 132 * kReductionBlocksOfSm, .lanes = kMinLanes, .thread_rows = 4};
/// An elementwise pass. Many waves, so that the last, partial one matters little. A thread has 8 rows, to
/// amortize the loads per channel.
inline constexpr TilingBounds kElementwise{.blocks = 8192, .lanes = kMaxLanes, .thread_rows = 8};

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

/// Returns the tiling of x, which depends on the arguments only. `width` is the width of a pack. x must not
/// be empty.
inline ChannelTiling tile_channels(std::int64_t rows, std::int64_t channels, int width,
                                   const TilingBounds& bounds) {
  const auto pieces = [](std::int64_t n, std::int64_t size) { return (n + size - 1) / size; };
  const std::int64_t packs = pieces(channels, width);
  const auto total_lanes = [&](std::int64_t lanes) { return pieces(packs, lanes) * lanes; };
  std::int64_t lanes = static_cast<std::int64_t>(std::bit_ceil(
      static_cast<std::uint64_t>(std::min<std::int64_t>(packs, width > 1 ? bounds.lanes : kMaxLanes))));
  while (lanes > kMinLanes && total_lanes(lanes / 2) < total_lanes(lanes)) lanes /= 2;  // fewer idle lanes
  const std::int64_t tiles = pieces(packs, lanes);
  const std::int64_t max_row_blocks = std::max<std::int64_t>(1, bounds.blocks / tiles);
  const std::int64_t unit = kChannelBlock / lanes * bounds.thread_rows;  // whole groups of rows in flight
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
  int tile, row_block, rows_of_block;
  int row;         // the thread's row in the block: 0 … row_stride - 1
  int row_stride;  // rows that the block processes at once
  std::int64_t first, end;

  __device__ ThreadTile(const ChannelTiling& tiling, int width) {
    const int lane = static_cast<int>(threadIdx.x) & (tiling.lanes - 1);
    // Adjacent blocks take adjacent tiles of the same rows, so that they access adjacent memory at about the
    // same time.
    tile = static_cast<int>(blockIdx.x % static_cast<unsigned>(tiling.tiles));
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
  static_assert(kReduction.thread_rows % kRows == 0 && kElementwise.thread_rows % kRows == 0);
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
  __device__ void store(T* to, std::int64_t stride, bool is_aligned = true) const {
#pragma unroll
    for (int r = 0; r < kRows; ++r) store_pack(to + r * stride, packs[r], is_aligned);
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

/// Calls f(std::integral_constant<int, width>) with the width of packs of T: kVectorWidth<T> if rows consist
/// of such packs, otherwise 1. A kernel whose results depend on the width must not pass `aligned`, whether
/// the arrays are aligned for packs, but use it to load them.
template <class T, class F>
void choose_width(std::int64_t channels, const F& f, bool aligned = true) {
  if (aligned && channels % kVectorWidth<T> == 0) {
    f(std::integral_constant<int, kVectorWidth<T>>{});
  } else {
    f(std::integral_constant<int, 1>{});
  }
}

}  // namespace convoy::kernels::cuda
