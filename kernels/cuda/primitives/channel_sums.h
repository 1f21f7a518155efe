// Work distribution over [rows, channels], and two sums over the rows of each channel, in one launch and in a
// fixed order. Each block sums its rows and stores a partial result. The last block of each tile sums the
// partial results of the tile.
//
// The last block is a tail: the rest of the GPU is idle meanwhile. It reads 8 bytes per channel and row block
// in f32, at most 128 KiB for a layer of ResNet-18, which takes at least 1.2 us (an estimate). A launch of its
// own would cost 2 to 3 us.
#pragma once

#include <algorithm>
#include <bit>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/last_block.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {

// Work distribution for kernels over x [rows, channels] with channels last: the assignment of elements to
// threads. It, and with it the order of all sums, is a function of the shape, the element type and, for
// reductions, of CudaStream::multiprocessors() (tile_channels()).

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
/// A pass that sums rows. Two blocks for each SM: one wave, and few partial results, since the last block of
/// a tile reads all of the tile's. Tiles are as narrow as a cache line, so that they have several last blocks,
/// which run at the same time. A thread with 4 rows loads them together.
inline constexpr int kReductionBlocksOfSm = 2;
inline constexpr int kReductionThreadRows = 4;
inline TilingBounds reduction(const CudaStream& stream) {
  // A tile with several blocks takes a ticket, and there are at most half as many such tiles as blocks.
  return {.blocks = std::min(kReductionBlocksOfSm * stream.multiprocessors(), 2 * CudaStream::kTickets),
          .lanes = kMinLanes,
          .thread_rows = kReductionThreadRows};
}
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

  dim3 grid() const { return {static_cast<unsigned>(tiles), static_cast<unsigned>(row_blocks)}; }
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
  int lane, tile, row_block, rows_of_block;
  int row;         // the thread's row in the block: 0 … row_stride - 1
  int row_stride;  // rows that the block processes at once
  std::int64_t first, end;

  __device__ ThreadTile(const ChannelTiling& tiling, int width) {
    lane = static_cast<int>(threadIdx.x) & (tiling.lanes - 1);
    // Adjacent blocks take adjacent tiles of the same rows, so that they access adjacent memory at about the
    // same time.
    tile = static_cast<int>(blockIdx.x);
    row_block = static_cast<int>(blockIdx.y);
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
  static_assert(kElementwise.thread_rows % kRows == 0);
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

// The sums.

/// Two sums (or two moments) for each of a thread's channels.
template <class C, int kWidth>
struct ChannelPairs {
  C first[kWidth]{};
  C second[kWidth]{};
};

/// What follows from the two sums of a channel.
template <class C>
struct ChannelResults {
  C values[3];
};

/// The shared memory of reduce_rows(). The index order gives adjacent threads adjacent banks.
template <class C, int kWidth>
struct RowScratch {
  C first[kWidth][kChannelBlock];
  C second[kWidth][kChannelBlock];
};

/// Combines the pairs of the threads of each lane in a binary tree; the thread whose row is 0 gets the
/// result. At each level, the threads of rows [0, level) combine their pairs with those of rows [level, 2
/// level) by rule(first, second, other_first, other_second), where `rule` is combine.at(level). All threads
/// must call it. One barrier per level is enough, since no level reads or writes an element of `scratch` that
/// another level reads. Two calls with the same memory need a barrier between them.
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
      const auto rule = combine.template at<C>(level);
#pragma unroll
      for (int i = 0; i < kWidth; ++i)
        rule(local.first[i], local.second[i], scratch.first[i][other], scratch.second[i][other]);
    }
  }
}

struct AddPairs {
  template <class C>
  __device__ AddPairs at(int /*level*/) const {
    return {};
  }
  template <class C>
  __device__ void operator()(C& first, C& second, C other_first, C other_second) const {
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

/// The shared memory of sum_tile().
template <class C, int kWidth>
struct TileScratch {
  /// The width of the packs in which the last block loads partial results.
  static constexpr int kPart = std::min(kWidth, kVectorWidth<C>);
  union {
    RowScratch<C, kWidth> block;       // for the rows of a block
    RowScratch<double, kPart> blocks;  // for the partial results
  };
  bool is_last;
};

/// Stores the block's pairs in `partials`. The last block of the tile then calls term(row block, first, second,
/// first sum, second sum) for all row blocks, which adds to two sums, in a fixed order and about as precisely as in
/// f64. It calls finish(channel, first sum, second sum) for each channel of the tile. All threads must call it.
/// `tickets` are those of the stream.
template <int kWidth, class C, class Term, class Finish>
__device__ void sum_tile(TileScratch<C, kWidth>& scratch, const ChannelTiling& tiling, const ThreadTile& tile,
                         C* partials, unsigned* tickets, const ChannelPairs<C, kWidth>& pairs,
                         const Term& term, const Finish& finish) {
  store_partials(partials, tiling, tile, pairs);
  if (!is_last_block(scratch.is_last, tickets + tile.tile, tiling.row_blocks)) return;
  constexpr int kPart = TileScratch<C, kWidth>::kPart;
  const int lanes = tiling.lanes * (kWidth / kPart);
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1), row = thread / lanes;
  const std::int64_t first_channel = std::int64_t{tile.tile} * lanes * kPart;
  const std::int64_t channel = first_channel + lane * kPart;
  CompensatedSum<C> firsts_sum[kPart], seconds_sum[kPart];
  if (channel < tiling.channels) {
#pragma unroll 4
    for (int block = row; block < tiling.row_blocks; block += kChannelBlock / lanes) {
      const C* const from = partials + 2 * block * tiling.channels + channel;
      const Pack<C, kPart> firsts = load_pack<kPart>(from),
                           seconds = load_pack<kPart>(from + tiling.channels);
#pragma unroll
      for (int i = 0; i < kPart; ++i)
        term(block, firsts.values[i], seconds.values[i], firsts_sum[i], seconds_sum[i]);
    }
  }
  ChannelPairs<double, kPart> sums;
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    sums.first[i] = firsts_sum[i].value();
    sums.second[i] = seconds_sum[i].value();
  }
  reduce_rows(scratch.blocks, lanes, sums, AddPairs{});
  // One thread per channel finishes. The tree does not use these elements.
  if (row == 0) {
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      scratch.blocks.first[i][lane] = sums.first[i];
      scratch.blocks.second[i][lane] = sums.second[i];
    }
  }
  __syncthreads();
  if (thread < lanes * kPart && first_channel + thread < tiling.channels)
    finish(first_channel + thread, scratch.blocks.first[thread % kPart][thread / kPart],
           scratch.blocks.second[thread % kPart][thread / kPart]);
}

/// A term of sum_tile(): the partial results themselves.
struct SumOfPartials {
  template <class C>
  __device__ void operator()(int /*block*/, C first, C second, CompensatedSum<C>& firsts,
                             CompensatedSum<C>& seconds) const {
    firsts.add(first);
    seconds.add(second);
  }
};

/// A gradient [C] and its mode; `values` is null if the gradient is unwanted.
template <class C>
struct ChannelGradient {
  C* values;
  bool adds;

  explicit ChannelGradient(const GradView& view)
      : values(view.as<C>()), adds(view.mode == GradMode::accumulate) {}
  /// Returns the value to which put() adds.
  __device__ double before(std::int64_t c) const {
    return values != nullptr && adds ? static_cast<double>(values[c]) : 0;
  }
  __device__ void put(std::int64_t c, double before, double value) const {
    if (values != nullptr) values[c] = static_cast<C>(adds ? before + value : value);
  }
};

}  // namespace convoy::kernels::cuda
