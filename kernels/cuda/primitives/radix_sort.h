// A stable sort of small integers on the GPU: least significant digit first (Knuth, The Art of Computer
// Programming, volume 3, section 5.2.5), with counting of digits and scans as in Satish, Harris and Garland,
// "Designing efficient sorting algorithms for manycore GPUs", IPDPS 2009. There are no atomics, and the
// result is unique.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <utility>

#include "convoy/kernels/cuda/primitives/block_reduce.h"

namespace convoy::kernels::cuda {

inline constexpr int kDigitBits = 4;
inline constexpr int kDigits = 1 << kDigitBits;
inline constexpr int kSortBlock = 256;
inline constexpr int kSortItems = 8;  // adjacent items of one thread
inline constexpr std::int64_t kSortTile = kSortBlock * kSortItems;
/// Maximum number of blocks. Larger arrays give each block several tiles, so that the table of counts stays
/// small.
inline constexpr std::int64_t kMaxSortBlocks = 256;

/// The numbers of items with each digit, per thread. A team of 16 threads sums and scans the row of one
/// digit.
struct SortCounts {
  std::uint32_t of[kDigits][kSortBlock];
};
struct SortShared {
  SortCounts counts;
  std::uint32_t totals[kDigits];
};
inline constexpr int kDigitTeam = kSortBlock / kDigits;
inline constexpr int kTeamRun = kSortBlock / kDigitTeam;  // adjacent counts of one thread of the team

__device__ inline int digit_of(std::uint32_t key, int shift) {
  return static_cast<int>(key >> shift & (kDigits - 1));
}

/// Returns the sum of `value` over the threads of a digit's team.
__device__ inline std::uint32_t team_sum(std::uint32_t value) {
  for (int offset = kDigitTeam / 2; offset > 0; offset /= 2)
    value += __shfl_xor_sync(kAllLanes, value, offset);
  return value;
}

/// Sets table[digit][block] to the number of keys with this digit in the range of `range` keys of each block.
template <int kBlock>
__global__ void __launch_bounds__(kBlock)
    count_digits_kernel(std::int64_t n, std::int64_t range, int shift, const std::uint32_t* keys,
                        std::uint32_t* table) {
  SortCounts& counts = shared_memory<SortShared>().counts;
  const int thread = static_cast<int>(threadIdx.x);
  for (int digit = 0; digit < kDigits; ++digit) counts.of[digit][thread] = 0;
  const std::int64_t begin = blockIdx.x * range, end = begin + range < n ? begin + range : n;
  for (std::int64_t i = begin + thread; i < end; i += kBlock) ++counts.of[digit_of(keys[i], shift)][thread];
  __syncthreads();
  const int digit = thread / kDigitTeam, rank = thread % kDigitTeam;
  std::uint32_t sum = 0;
  for (int other = rank; other < kBlock; other += kDigitTeam) sum += counts.of[digit][other];
  sum = team_sum(sum);
  if (rank == 0) table[std::int64_t{digit} * gridDim.x + blockIdx.x] = sum;
}

/// Moves each key and its position to its place in the order of one digit. Null `positions_in` are 0, 1, 2,
/// ….
template <int kBlock>
__global__ void __launch_bounds__(kBlock)
    scatter_kernel(std::int64_t n, std::int64_t range, int shift, const std::uint32_t* table,
                   const std::uint32_t* keys_in, const std::int32_t* positions_in, std::uint32_t* keys_out,
                   std::int32_t* positions_out) {
  SortShared& shared = shared_memory<SortShared>();
  const int thread = static_cast<int>(threadIdx.x);
  const int digit = thread / kDigitTeam, rank = thread % kDigitTeam;

  // The place of the block's first item with the team's digit: behind all items with smaller digits, and
  // behind those of earlier blocks with this digit.
  std::uint32_t total = 0, before = 0;
  for (unsigned block = static_cast<unsigned>(rank); block < gridDim.x; block += kDigitTeam) {
    const std::uint32_t count = table[std::int64_t{digit} * gridDim.x + block];
    total += count;
    if (block < blockIdx.x) before += count;
  }
  total = team_sum(total);
  before = team_sum(before);
  if (rank == 0) shared.totals[digit] = total;
  __syncthreads();
  std::uint32_t place = before;
  for (int smaller = 0; smaller < digit; ++smaller) place += shared.totals[smaller];

  const std::int64_t begin = blockIdx.x * range, end = begin + range < n ? begin + range : n;
  for (std::int64_t tile = begin; tile < end; tile += kSortTile) {
    const std::int64_t first = tile + std::int64_t{thread} * kSortItems;
    std::uint32_t keys[kSortItems];
    for (int d = 0; d < kDigits; ++d) shared.counts.of[d][thread] = 0;
#pragma unroll
    for (int k = 0; k < kSortItems; ++k)
      if (first + k < end) {
        keys[k] = keys_in[first + k];
        ++shared.counts.of[digit_of(keys[k], shift)][thread];
      }
    __syncthreads();

    // Replaces the counts of the team's digit by the places of each thread's first item: an exclusive scan.
    std::uint32_t* const row = shared.counts.of[digit] + rank * kTeamRun;
    std::uint32_t sum = 0;
    for (int k = 0; k < kTeamRun; ++k) sum += row[k];
    std::uint32_t inclusive = sum;
    for (unsigned offset = 1; offset < kDigitTeam; offset *= 2) {
      const std::uint32_t earlier = __shfl_up_sync(kAllLanes, inclusive, offset, kDigitTeam);
      if (rank >= static_cast<int>(offset)) inclusive += earlier;
    }
    std::uint32_t next = place + inclusive - sum;
    for (int k = 0; k < kTeamRun; ++k) {
      const std::uint32_t count = row[k];
      row[k] = next;
      next += count;
    }
    place += __shfl_sync(kAllLanes, inclusive, kDigitTeam - 1, kDigitTeam);
    __syncthreads();

#pragma unroll
    for (int k = 0; k < kSortItems; ++k)
      if (first + k < end) {
        const std::uint32_t to = shared.counts.of[digit_of(keys[k], shift)][thread]++;
        keys_out[to] = keys[k];
        positions_out[to] =
            positions_in == nullptr ? static_cast<std::int32_t>(first + k) : positions_in[first + k];
      }
    __syncthreads();
  }
}

/// Keys in order, and the position of each before sorting. Equal keys keep their order.
struct SortedKeys {
  const std::uint32_t* keys;
  const std::int32_t* positions;
};

/// The arrays of a sort of n keys, with room for a second copy of each.
class KeySort {
 public:
  KeySort(CudaStream& stream, std::int64_t n)
      : n_(n),
        tiles_((n + kSortTile - 1) / kSortTile),
        blocks_(std::min(tiles_, kMaxSortBlocks)),
        memory_(stream, static_cast<std::size_t>(4 * n + kDigits * blocks_) * sizeof(std::uint32_t)) {}

  /// Returns the array to which the caller writes the keys before it calls sort().
  std::uint32_t* keys() const { return memory_.as<std::uint32_t>(); }

  /// Enqueues the sort of n > 0 keys of at most `max_key`. The result is valid as long as this object, for
  /// kernels that are enqueued on the same stream.
  SortedKeys sort(CudaStream& stream, std::uint32_t max_key) const {
    std::uint32_t *from = keys(), *to = from + n_;
    auto* positions_to = reinterpret_cast<std::int32_t*>(to + n_);
    std::int32_t *positions_from = nullptr, *other_positions = positions_to + n_;
    auto* const table = reinterpret_cast<std::uint32_t*>(other_positions + n_);
    const std::int64_t range = (tiles_ + blocks_ - 1) / blocks_ * kSortTile;
    // One pass also if all keys are 0: it writes the positions.
    for (int shift = 0; shift == 0 || shift < static_cast<int>(std::bit_width(max_key));
         shift += kDigitBits) {
      const auto blocks = static_cast<unsigned>(blocks_);
      launch(stream, blocks, kSortBlock, sizeof(SortShared), count_digits_kernel<kSortBlock>, n_, range,
             shift, from, table);
      launch(stream, blocks, kSortBlock, sizeof(SortShared), scatter_kernel<kSortBlock>, n_, range, shift,
             table, from, positions_from, to, positions_to);
      std::swap(from, to);
      positions_from =
          std::exchange(positions_to, positions_from == nullptr ? other_positions : positions_from);
    }
    return {from, positions_from};
  }

 private:
  std::int64_t n_, tiles_, blocks_;
  Scratch memory_;
};

}  // namespace convoy::kernels::cuda
