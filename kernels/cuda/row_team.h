// The rows of a matrix and the threads that share one: a warp where rows are short, a block where they are
// long. A kernel is a template over the team: Team::row() is the row of this thread, Team::rank() its place
// in the team of Team::kSize, and a team reduces a value to all its threads.
#pragma once

#include <cstdint>
#include <limits>

#include "kernels/cuda/block_reduce.h"
#include "kernels/cuda/element.h"

namespace convoy::cuda {

inline constexpr std::int64_t kMostWarpColumns = 1024;  // a lane then has 32 elements; beyond, a block shares

struct WarpTeam {
  static constexpr int kSize = kWarp;
  static constexpr int kRowsOfBlock = 4;  // small blocks, so that a batch of 128 rows reaches 32 SMs
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

struct BlockTeam {
  static constexpr int kSize = 512;
  static constexpr int kRowsOfBlock = 1;
  static constexpr int kBlock = kSize;
  static constexpr std::size_t kSharedBytes = sizeof(BlockPartials<double, kSize>);  // of the largest type

  __device__ static std::int64_t row() { return blockIdx.x; }
  __device__ static int rank() { return static_cast<int>(threadIdx.x); }
  template <class T, class Op>
  __device__ static T reduce(T value, Op op) {
    return block_reduce<kSize>(value, op, shared_memory<BlockPartials<T, kSize>>());
  }
};

/// f(team) with the team for rows of so many columns.
template <class F>
void dispatch_team(std::int64_t columns, F f) {
  if (columns <= kMostWarpColumns) {
    f(WarpTeam{});
  } else {
    f(BlockTeam{});
  }
}

/// f(c, x[c]) for the thread's share of a row x. A few loads wait for memory together, also where f stores.
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

struct Max {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a < b ? b : a;
  }
};

struct Min {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return b < a ? b : a;
  }
};

template <class T>
struct FirstLargest {
  T value;  // infinity where the first element is NaN
  std::int32_t index;
};

/// The first of the largest elements of a row, to all of its team. As a search by < from the first element
/// finds it: NaN is the result where it comes first, and passed over elsewhere.
template <class Team, class T>
__device__ FirstLargest<compute_t<T>> first_largest(const T* x, std::int64_t columns) {
  using C = compute_t<T>;
  constexpr C kInfinity = std::numeric_limits<C>::infinity();
  FirstLargest<C> mine{-kInfinity, 0};  // element 0 is the answer where all are as small
  for_each_of_row<Team>(x, columns, [&mine](std::int64_t c, C value) {
    const C rank = c == 0 && value != value ? kInfinity : value;
    if (mine.value < rank) mine = {rank, static_cast<std::int32_t>(c)};
  });
  const C largest = Team::reduce(mine.value, Max{});
  const std::int32_t candidate =
      mine.value == largest ? mine.index : std::numeric_limits<std::int32_t>::max();
  return {largest, Team::reduce(candidate, Min{})};
}

}  // namespace convoy::cuda
