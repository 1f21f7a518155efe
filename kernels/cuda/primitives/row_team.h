// Teams of threads that process one row of a matrix together: a warp for short rows, a block for long rows.
// Kernels are templates over the team. Team::row() returns the row of this thread. Team::rank() returns its
// index in the team of Team::kSize threads. Team::reduce() reduces a value over the team and returns the
// result to all threads.
#pragma once

#include <cstdint>
#include <limits>

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {

inline constexpr std::int64_t kMaxWarpColumns = 1024;  // 32 elements per lane; longer rows are for a block

/// One warp per row.
struct WarpTeam {
  static constexpr int kSize = kWarp;
  static constexpr int kRowsOfBlock = 4;  // small blocks, so that a batch of 128 rows uses 32 SMs
  static constexpr int kBlock = kRowsOfBlock * kWarp;
  static constexpr std::size_t kSharedBytes = 0;

  __device__ static std::int64_t row() {
    return std::int64_t{blockIdx.x} * kRowsOfBlock + threadIdx.x / kWarp;
  }
  __device__ static int rank() { return static_cast<int>(threadIdx.x % kWarp); }
  template <class T, class Op>
  __device__ static T reduce(T value, Op op) {
    return warp_reduce(value, op);
  }
};

/// One block per row.
struct BlockTeam {
  static constexpr int kSize = 512;
  static constexpr int kRowsOfBlock = 1;
  static constexpr int kBlock = kSize;
  static constexpr std::size_t kSharedBytes = sizeof(BlockPartials<double, kSize>);  // for the largest type

  __device__ static std::int64_t row() { return blockIdx.x; }
  __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  template <class T, class Op>
  __device__ static T reduce(T value, Op op) {
    return block_reduce<kSize>(value, op, shared_memory<BlockPartials<T, kSize>>());
  }
};

/// Enqueues a kernel with one team for each of `rows` rows of `columns` columns. kernel_of(team) returns the kernel
/// for a kind of team.
template <class F, class... Arguments>
void launch_teams(CudaStream& stream, std::int64_t rows, std::int64_t columns, F kernel_of,
                  const Arguments&... arguments) {
  const auto run = [&](auto team) {
    launch(stream, blocks_for(rows, team.kRowsOfBlock), team.kBlock, team.kSharedBytes, kernel_of(team),
           arguments...);
  };
  if (columns <= kMaxWarpColumns) return run(WarpTeam{});
  run(BlockTeam{});
}

/// Calls f(c, x[c]) for this thread's elements of a row x. Issues a few loads before the calls, so that the
/// loads overlap even if f stores.
template <class Team, class T, class F>
__device__ void for_each_of_row(const T* x, std::int64_t columns, F f) {
  constexpr int kLoads = 4;
  for (std::int64_t first = Team::rank(); first < columns; first += kLoads * Team::kSize) {
    T in[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (first + k * Team::kSize < columns) in[k] = x[first + k * Team::kSize];
#pragma unroll
    for (int k = 0; k < kLoads; ++k)
      if (first + k * Team::kSize < columns) f(first + k * Team::kSize, widen(in[k]));
  }
}

/// The value and index of the first of the largest elements of a row.
template <class T>
struct FirstLargest {
  T value;  // infinity if the first element is NaN
  std::int32_t index;
};

/// Returns the first of the largest elements of a row to all threads of the team. The result is that of a
/// search with < from the first element: NaN is the result if it is the first element, and is skipped
/// elsewhere.
template <class Team, class T>
__device__ FirstLargest<compute_t<T>> first_largest(const T* x, std::int64_t columns) {
  using C = compute_t<T>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  FirstLargest<C> local{-kInfinity, 0};  // element 0 is the result if all elements are -infinity
  for_each_of_row<Team>(x, columns, [&local](std::int64_t c, C value) {
    const C key = c == 0 && value != value ? kInfinity : value;
    if (local.value < key) local = {key, static_cast<std::int32_t>(c)};
  });
  const C largest = Team::reduce(local.value, [](C a, C b) { return a < b ? b : a; });
  const std::int32_t candidate =
      local.value == largest ? local.index : std::numeric_limits<std::int32_t>::max();
  return {largest, Team::reduce(candidate, [](std::int32_t a, std::int32_t b) { return b < a ? b : a; })};
}

}  // namespace convoy::kernels::cuda
