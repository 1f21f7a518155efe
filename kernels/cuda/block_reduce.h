// Reductions within a warp and a block, in an order that the shape alone fixes: no atomics, so results repeat
// bit for bit.
#pragma once

#include "kernels/cuda/launch.h"

namespace convoy::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// op over the 32 lanes of a warp, to every lane. All of them call it.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

/// What block_reduce needs of shared memory: a value from each warp of a block of kThreads.
template <class T, int kThreads>
struct BlockPartials {
  static_assert(kThreads % kWarp == 0 && kThreads <= kWarp * kWarp);
  T of_warp[kThreads / kWarp];
};

/// op over the kThreads threads of a one-dimensional block, to every thread. All of them call it; `partials`
/// is free again when it returns.
template <int kThreads, class T, class Op>
__device__ T block_reduce(T value, Op op, BlockPartials<T, kThreads>& partials) {
  value = warp_reduce(value, op);
  if (threadIdx.x % kWarp == 0) partials.of_warp[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = partials.of_warp[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) result = op(result, partials.of_warp[warp]);
  __syncthreads();
  return result;
}

}  // namespace convoy::cuda
