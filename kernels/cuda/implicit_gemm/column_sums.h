// Two sums over all pixels for each output channel, in the launch that computes the result and in a fixed
// order. Each block stores the sums of its pixels as partial results. The last block of each tile of kColumns
// channels combines those of the tile in f64.
//
// The last block is a tail: the rest of the GPU is idle meanwhile. So if there are many row blocks, they form
// groups. The last block of each group combines the partial results of the group, and the last of these
// blocks combines those of the groups.
#pragma once

#include <algorithm>

#include "convoy/kernels/cuda/implicit_gemm/geometry.h"
#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/last_block.h"

namespace convoy::kernels::implicit_gemm {

inline constexpr int kChunks = kColumns / kPack;        // packs of a row of the result
inline constexpr int kRowsAtOnce = kThreads / kChunks;  // a thread has every kRowsAtOnce-th row of its pack

/// The partial results: [column tiles, row blocks, 2, kColumns], and those of the groups, [column tiles,
/// groups, 2, kColumns]. A group has `group_blocks` adjacent row blocks. `of_blocks` is null if no sums are
/// wanted.
struct ColumnPartials {
  float* of_blocks;
  double* of_groups;
  unsigned* tickets;  // per column tile: one for each group, and one for the tile if it has several groups
  int group_blocks, groups;
};

/// The part of the result that a block computes. Each column tile has `row_blocks` blocks.
struct BlockPart {
  int column_tile, row_block, row_blocks;
  int rows;  // pixels; kPixels except in the last row block

  /// Returns the block's first channel.
  __device__ int first_column() const { return column_tile * kColumns; }
};

/// Shared memory for the sums over the rows of a block. It follows the tile of store().
struct ColumnScratch {
  float sums[2][kWarps][kColumns];
  bool is_last;
};

/// Sums `values` over the threads of the block that have the same pack of channels, and returns the sums to
/// each of them. The first threads of a warp add up its 4 rows, and then each thread adds up the warps. All
/// threads must call it. Two calls with the same scratch need a barrier between them.
__device__ inline void sum_rows(float (&values)[kPack], float (&scratch)[kWarps][kColumns]) {
  const int thread = static_cast<int>(threadIdx.x), chunk = thread % kChunks;
#pragma unroll
  for (int i = 0; i < kPack; ++i)
#pragma unroll
    for (int lanes = kChunks; lanes < cuda::kWarp; lanes *= 2)
      values[i] += __shfl_xor_sync(cuda::kAllLanes, values[i], lanes);
  constexpr int kPart = cuda::kVectorWidth<float>;
  if (thread % cuda::kWarp < kChunks)
#pragma unroll
    for (int part = 0; part < kPack; part += kPart) {
      cuda::Pack<float, kPart> pack;
#pragma unroll
      for (int i = 0; i < kPart; ++i) pack.values[i] = values[part + i];
      cuda::store_pack(&scratch[thread / cuda::kWarp][chunk * kPack + part], pack);
    }
  __syncthreads();
#pragma unroll
  for (int part = 0; part < kPack; part += kPart)
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      const auto pack = cuda::load_pack<kPart>(&scratch[warp][chunk * kPack + part]);
#pragma unroll
      for (int i = 0; i < kPart; ++i)
        values[part + i] = warp == 0 ? pack.values[i] : values[part + i] + pack.values[i];
    }
}

/// The two sums of a channel.
struct ColumnPair {
  double first, second;
};

/// Adds up the pairs of units of rows: the blocks of a group, or the groups.
struct AddSums {
  __device__ static double origin(double /*first*/, double /*inverse_rows*/) { return 0; }
  __device__ static ColumnPair term(double /*origin*/, double /*rows*/, double /*inverse_rows*/,
                                    const ColumnPair& unit) {
    return unit;
  }
  __device__ static ColumnPair total(double /*origin*/, double /*rows*/, const ColumnPair& terms) {
    return terms;
  }
};

/// Combines moments: the sum of the values of a unit, and the sum of squared differences from their mean. The
/// terms are sums of x - origin and of its square, where the origin is the mean of the first unit. So values
/// that cancel are of the size of the differences between the means of units.
struct CombineMoments {
  __device__ static double origin(double first, double inverse_rows) { return first * inverse_rows; }
  __device__ static ColumnPair term(double origin, double rows, double inverse_rows, const ColumnPair& unit) {
    const double shift = unit.first * inverse_rows - origin;
    return {rows * shift, unit.second + rows * shift * shift};
  }
  __device__ static ColumnPair total(double origin, double rows, const ColumnPair& terms) {
    const double squares = terms.second - terms.first * terms.first / rows;
    return {terms.first + rows * origin, squares < 0 ? 0 : squares};  // keeps NaN
  }
};

/// Combines the pairs [units, 2, kColumns] of a column tile, in a fixed order. Each unit has `unit_rows` of
/// the `rows` rows, except the last one, which may have fewer. Returns the pair of channel i to thread i. All
/// threads must call it. `shared` has 8 KiB. Two calls need a barrier between them.
template <class Rule, class V>
__device__ ColumnPair combine_units(const V* units, int unit_rows, int rows, unsigned char* shared) {
  constexpr int kPart = cuda::kVectorWidth<V>, kLanes = kColumns / kPart, kTeams = kThreads / kLanes;
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes, team = thread / kLanes;
  const int count = (rows + unit_rows - 1) / unit_rows, last_rows = rows - (count - 1) * unit_rows;
  const double inverse = 1 / static_cast<double>(unit_rows),
               last_inverse = 1 / static_cast<double>(last_rows);
  const double first_inverse = count > 1 ? inverse : last_inverse;
  const auto origins = cuda::load_pack<kPart>(units + lane * kPart);
  ColumnPair sums[kPart] = {};
#pragma unroll 4
  for (int unit = team; unit < count; unit += kTeams) {
    const V* const at = units + std::int64_t{unit} * (2 * kColumns) + lane * kPart;
    const auto firsts = cuda::load_pack<kPart>(at), seconds = cuda::load_pack<kPart>(at + kColumns);
    const bool is_last = unit == count - 1;
#pragma unroll
    for (int i = 0; i < kPart; ++i) {
      const double origin = Rule::origin(static_cast<double>(origins.values[i]), first_inverse);
      const ColumnPair one =
          Rule::term(origin, is_last ? last_rows : unit_rows, is_last ? last_inverse : inverse,
                     {static_cast<double>(firsts.values[i]), static_cast<double>(seconds.values[i])});
      sums[i].first += one.first;
      sums[i].second += one.second;
    }
  }
  auto& teams = *reinterpret_cast<double(*)[2][kTeams][kColumns]>(shared);
#pragma unroll
  for (int i = 0; i < kPart; ++i) {
    teams[0][team][lane * kPart + i] = sums[i].first;
    teams[1][team][lane * kPart + i] = sums[i].second;
  }
  __syncthreads();
  if (thread >= kColumns) return {};
  ColumnPair sum = {};
#pragma unroll
  for (int i = 0; i < kTeams; ++i) {
    sum.first += teams[0][i][thread];
    sum.second += teams[1][i][thread];
  }
  return Rule::total(Rule::origin(static_cast<double>(units[thread]), first_inverse), rows, sum);
}

/// Stores the block's `first` and `second` sums as partial results. The last block of the column tile then
/// combines those of all row blocks by Rule, AddSums or CombineMoments, and calls finish(channel, pair) for
/// each channel of the tile. All threads must call it. `shared` has 8 KiB, which may hold the tile of
/// store(). `rows` is the number of all pixels.
template <class Rule, int kPixels, class Finish>
__device__ void combine_columns(const ColumnPartials& partials, const BlockPart& part, int rows,
                                const float (&first)[kPack], const float (&second)[kPack],
                                unsigned char* shared, bool& is_last, const Finish& finish) {
  constexpr int kPart = cuda::kVectorWidth<float>, kPair = 2 * kColumns;
  const int thread = static_cast<int>(threadIdx.x);
  float* const blocks = partials.of_blocks + std::int64_t{part.column_tile} * part.row_blocks * kPair;
  if (thread < kChunks) {
    float* const to = blocks + std::int64_t{part.row_block} * kPair + thread * kPack;
#pragma unroll
    for (int p = 0; p < kPack; p += kPart) {
      cuda::Pack<float, kPart> firsts, seconds;
#pragma unroll
      for (int i = 0; i < kPart; ++i) {
        firsts.values[i] = first[p + i];
        seconds.values[i] = second[p + i];
      }
      cuda::store_pack(to + p, firsts);
      cuda::store_pack(to + kColumns + p, seconds);
    }
  }
  const int group = part.row_block / partials.group_blocks, first_block = group * partials.group_blocks;
  const int group_blocks = std::min(partials.group_blocks, part.row_blocks - first_block);
  const int group_rows = std::min(group_blocks * kPixels, rows - first_block * kPixels);
  unsigned* const tickets =
      partials.tickets + part.column_tile * (partials.groups > 1 ? partials.groups + 1 : 1);
  if (!cuda::is_last_block(is_last, tickets + group, group_blocks)) return;
  ColumnPair pair =
      combine_units<Rule>(blocks + std::int64_t{first_block} * kPair, kPixels, group_rows, shared);
  if (partials.groups > 1) {
    double* const groups = partials.of_groups + std::int64_t{part.column_tile} * partials.groups * kPair;
    if (thread < kColumns) {
      groups[group * kPair + thread] = pair.first;
      groups[group * kPair + kColumns + thread] = pair.second;
    }
    if (!cuda::is_last_block(is_last, tickets + partials.groups, partials.groups)) return;
    pair = combine_units<Rule>(groups, partials.group_blocks * kPixels, rows, shared);
  }
  if (thread < kColumns) finish(part.first_column() + thread, pair);
}

/// The scratch memory of ColumnPartials for a result [pixels, channels].
class ColumnMemory {
 public:
  ColumnMemory(CudaStream& stream, std::int64_t pixels, int block_pixels, std::int64_t channels)
      : tickets_(stream.tickets()),
        tiles_(static_cast<int>(channels) / kColumns),
        row_blocks_(static_cast<int>(blocks_for(pixels, block_pixels))),
        group_blocks_(group_blocks(row_blocks_, tiles_)),
        groups_((row_blocks_ + group_blocks_ - 1) / group_blocks_),
        memory_(stream, pairs(groups_) * sizeof(double) + pairs(row_blocks_) * sizeof(float)) {}

  ColumnPartials partials() const {
    auto* const of_groups = memory_.as<double>();
    return {reinterpret_cast<float*>(of_groups + pairs(groups_)), of_groups, tickets_, group_blocks_,
            groups_};
  }

 private:
  /// Returns the number of row blocks of a group: about the square root of their number, or all if they are
  /// few or if there are not enough tickets.
  static int group_blocks(int row_blocks, int tiles) {
    constexpr int kFewBlocks = 32;
    const int max_groups = CudaStream::kTickets / tiles - 1;
    if (row_blocks <= kFewBlocks || max_groups < 2) return row_blocks;
    int groups = 2;
    while (groups < max_groups && groups * groups < row_blocks) ++groups;
    return (row_blocks + groups - 1) / groups;
  }
  std::size_t pairs(int units) const {
    return static_cast<std::size_t>(tiles_) * static_cast<std::size_t>(units) * (2 * kColumns);
  }

  unsigned* tickets_;
  int tiles_, row_blocks_, group_blocks_, groups_;
  cuda::Scratch memory_;
};

}  // namespace convoy::kernels::implicit_gemm
