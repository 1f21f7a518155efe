// Two sums over the rows of each channel by clusters of blocks, in one launch and in a fixed order. Each block keeps its
// rows in shared memory, reads the sums of the other blocks in the order of their ranks, and computes with what it has
// kept. So arrays that are needed again after the sums are read once. channel_sums.h serves larger arrays.
#pragma once

#include "convoy/kernels/cuda/primitives/channel_sums.h"
#include "convoy/kernels/cuda/primitives/cluster.h"

namespace convoy::kernels::cuda {

/// The shared memory of a block of a cluster. The rows that it keeps follow.
template <class C, int kWidth>
struct ClusterScratch {
  RowScratch<C, kWidth> block;
  C pairs[2][kMaxLanes * kWidth];    // of all rows of the block, for the cluster
  C results[3][kMaxLanes * kWidth];  // ChannelResults of the cluster

  /// Returns the place of the thread in an array of rows that the block keeps. Each of its next rows is kKeptStride
  /// elements further.
  template <class T>
  __device__ T* kept(const ChannelTiling& tiling, int array = 0) {
    return reinterpret_cast<T*>(this + 1) +
           (array * static_cast<int>(tiling.block_rows) * tiling.lanes + static_cast<int>(threadIdx.x)) *
               kWidth;
  }
  static constexpr std::int64_t kKeptStride = kChannelBlock * kWidth;
};

inline constexpr int kClusterLanes = 2;       // or more, of 16 bytes: a sector
inline constexpr int kClusterBlocksOfSm = 2;  // for whose registers an SM must have space

/// Launches kernel(tiling, arguments…) in clusters of row_blocks blocks, and returns true. Returns false if x does not
/// consist of packs, or the GPU has no clusters that can keep `arrays` arrays of x's shape and type T. The tiling is a
/// function of these arguments, of LaunchLimits and of CudaStream::multiprocessors(): it has about one block for each.
template <class T, class... Parameters>
bool launch_clusters(CudaStream& stream, const Shape& x, int arrays,
                     void (*kernel)(ChannelTiling, Parameters...),
                     std::type_identity_t<Parameters>... arguments) {
  constexpr int kWidth = kVectorWidth<T>;
  auto& limits = stream.local<LaunchLimits>();
  const std::int64_t channels = x[-1], rows = x.numel() / channels;
  if (channels % kWidth != 0) return false;
  ChannelTiling tiling{};
  std::size_t bytes = 0;
  int blocks = 0;
  const auto tile = [&](int lanes, int row_blocks) {
    const auto tiles = static_cast<int>(blocks_for(channels, lanes * kWidth));
    tiling = {rows, channels, lanes, tiles, row_blocks, (rows + row_blocks - 1) / row_blocks};
    bytes = sizeof(ClusterScratch<compute_t<T>, kWidth>) +
            static_cast<std::size_t>(arrays * tiling.block_rows * lanes * kVectorBytes);
    blocks = tiles * row_blocks;
  };
  const int multiprocessors = stream.multiprocessors();
  for (int max_blocks = limits.cluster_blocks; max_blocks >= LaunchLimits::kPortableBlocks; max_blocks /= 2) {
    tile(channels > kWidth ? kClusterLanes : 1, 1);
    const int unit = kChannelBlock / tiling.lanes * kReductionThreadRows;
    while (tiling.row_blocks < max_blocks &&
           (bytes > limits.shared_bytes || (2 * blocks <= multiprocessors && tiling.block_rows > unit)))
      tile(tiling.lanes, 2 * tiling.row_blocks);
    while (blocks > multiprocessors && tiling.tiles > 1 && tiling.lanes < kMaxLanes &&
           2 * bytes <= limits.shared_bytes)
      tile(2 * tiling.lanes, tiling.row_blocks);
    if (bytes > limits.shared_bytes) continue;
    // Large clusters must all run at once: one that waits leaves up to 15 multiprocessors idle.
    const int wanted = tiling.row_blocks > LaunchLimits::kPortableBlocks ? tiling.tiles : 1;
    const auto cluster = static_cast<unsigned>(tiling.row_blocks);
    if (limits.resident_clusters(reinterpret_cast<const void*>(kernel), cluster, kChannelBlock, bytes) <
        wanted)
      continue;
    launch({LaunchStart::early, cluster}, stream, tiling.grid(), kChannelBlock, bytes, kernel, tiling,
           arguments...);
    return true;
  }
  return false;
}

/// Does the same as sum_tile() in all blocks of a cluster, and stores what finish(channel, first sum, second sum) returns in
/// scratch.results, at the channel's place in the tile. The kernel must end with wait_for_cluster().
template <int kWidth, class C, class Term, class Finish>
__device__ void sum_cluster(ClusterScratch<C, kWidth>& scratch, const ChannelTiling& tiling,
                            const ThreadTile& tile, const ChannelPairs<C, kWidth>& pairs, const Term& term,
                            const Finish& finish) {
  const int thread = static_cast<int>(threadIdx.x);
  if (tile.row == 0) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      scratch.pairs[0][thread * kWidth + i] = pairs.first[i];
      scratch.pairs[1][thread * kWidth + i] = pairs.second[i];
    }
  }
  arrive_at_cluster();
  wait_for_cluster();
  const std::int64_t channel = std::int64_t{tile.tile} * tiling.lanes * kWidth + thread;
  if (thread < tiling.lanes * kWidth && channel < tiling.channels) {
    CompensatedSum<C> firsts, seconds;
#pragma unroll 4
    for (int rank = 0; rank < tiling.row_blocks; ++rank)
      term(rank, load_from_block(rank, scratch.pairs[0][thread]),
           load_from_block(rank, scratch.pairs[1][thread]), firsts, seconds);
    const ChannelResults<C> found = finish(channel, firsts.value(), seconds.value());
#pragma unroll
    for (int i = 0; i < 3; ++i) scratch.results[i][thread] = found.values[i];
  }
  arrive_at_cluster();  // the block does not end before the others have read its pairs
  __syncthreads();
}

}  // namespace convoy::kernels::cuda
