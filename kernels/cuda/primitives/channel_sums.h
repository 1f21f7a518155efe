// Two sums over the rows of each channel, in one launch and in a fixed order. Each block sums its rows and
// stores a partial result. The last block of each tile sums the partial results of the tile in f64.
//
// The last block is a tail: the rest of the GPU is idle meanwhile. It reads 8 bytes per channel and row block
// in f32. The largest tail of ResNet-18 has 256 row blocks of 64 channels, which are 128 KiB (131,072 rows,
// bf16). The 256 threads have 8 loads of 16 bytes each in flight, so this takes 4 round trips to the
// second-level cache. At 64 bytes per cycle into one SM it takes at least 2,048 cycles, 1.2 us at 1.7 GHz.
// The other layers have 2 to 8 tiles with 64 to 8 KiB each, whose last blocks run at the same time. A launch
// of its own would cost 2 to 3 us. These times are estimates.
#pragma once

#include "convoy/kernels/cuda/primitives/channel_tiles.h"
#include "convoy/kernels/cuda/primitives/last_block.h"

namespace convoy::kernels::cuda {

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

// Tiles with several blocks take tickets.
static_assert(kReduction.blocks / 2 <= CudaStream::kTickets);

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

/// Stores the block's pairs in `partials`. The last block of the tile then sums term(row block, first,
/// second) over all row blocks, in f64 and in a fixed order, and calls finish(channel, first sum, second sum)
/// for each channel of the tile. All threads must call it. `tickets` are those of the stream.
template <int kWidth, class C, class Term, class Finish>
__device__ void sum_tile(TileScratch<C, kWidth>& scratch, const ChannelTiling& tiling, const ThreadTile& tile,
                         const ChannelPairs<C, kWidth>& pairs, C* partials, unsigned* tickets,
                         const Term& term, const Finish& finish) {
  store_partials(partials, tiling, tile, pairs);
  if (!is_last_block(scratch.is_last, tickets + tile.tile, tiling.row_blocks)) return;
  constexpr int kPart = TileScratch<C, kWidth>::kPart;
  const int lanes = tiling.lanes * (kWidth / kPart);
  const int thread = static_cast<int>(threadIdx.x), lane = thread & (lanes - 1), row = thread / lanes;
  const std::int64_t first_channel = std::int64_t{tile.tile} * lanes * kPart;
  const std::int64_t channel = first_channel + lane * kPart;
  ChannelPairs<double, kPart> sums;
  if (channel < tiling.channels) {
#pragma unroll 4
    for (int block = row; block < tiling.row_blocks; block += kChannelBlock / lanes) {
      const C* const from = partials + 2 * block * tiling.channels + channel;
      const Pack<C, kPart> firsts = load_pack<kPart>(from),
                           seconds = load_pack<kPart>(from + tiling.channels);
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        const ChannelPairs<double, 1> one =
            term(block, static_cast<double>(firsts.values[i]), static_cast<double>(seconds.values[i]));
        sums.first[i] += one.first[0];
        sums.second[i] += one.second[0];
      }
    }
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
  __device__ ChannelPairs<double, 1> operator()(int /*block*/, double first, double second) const {
    return {{first}, {second}};
  }
};

}  // namespace convoy::kernels::cuda
