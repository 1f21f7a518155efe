// Reductions within a warp and a block. The order of the operations is fixed and no atomics are used, so
// results are reproducible bit for bit.
#pragma once

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"

namespace convoy::kernels::cuda {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffffu;

struct Sum {
  template <class T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};

/// Reduces `value` with `op` over the 32 lanes of a warp, in 5 butterfly steps. Returns the result to every
/// lane. All lanes must call it.
template <class T, class Op>
__device__ T warp_reduce(T value, Op op) {
  for (int offset = kWarp / 2; offset > 0; offset /= 2)
    value = op(value, __shfl_xor_sync(kAllLanes, value, offset));
  return value;
}

/// The shared memory of block_reduce(): one value per warp of a block of kThreads threads.
template <class T, int kThreads>
struct BlockPartials {
  static_assert(kThreads % kWarp == 0 && kThreads <= kWarp * kWarp);
  T values[kThreads / kWarp];
};

/// Reduces `value` with `op` over the kThreads threads of a one-dimensional block. Reduces each warp first,
/// then the warps' values serially in the order of the warps. Returns the result to every thread. All threads
/// must call it. `partials` may be reused as soon as the function returns.
template <int kThreads, class T, class Op>
__device__ T block_reduce(T value, Op op, BlockPartials<T, kThreads>& partials) {
  value = warp_reduce(value, op);
  if (threadIdx.x % kWarp == 0) partials.values[threadIdx.x / kWarp] = value;
  __syncthreads();
  T result = partials.values[0];
  for (int warp = 1; warp < kThreads / kWarp; ++warp) result = op(result, partials.values[warp]);
  __syncthreads();
  return result;
}

/// Returns f(x[0]) + … + f(x[count - 1]) in f64 to all kThreads threads of a one-dimensional block. The order
/// of the sum depends on count and T only. All threads must call it.
template <int kThreads, class T, class F>
__device__ double block_sum(const T* x, int count, F f, BlockPartials<double, kThreads>& partials) {
  constexpr int kWidth = kVectorWidth<T>;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool x_is_aligned = is_aligned(x);
  const int packs = count / kWidth;
  double sum = 0;
#pragma unroll 4
  for (int pack = thread; pack < packs; pack += kThreads) {
    const auto in = load_pack<kWidth>(x + pack * kWidth, x_is_aligned);
    for (int i = 0; i < kWidth; ++i) sum += f(static_cast<double>(widen(in.values[i])));
  }
#pragma unroll 4
  for (int i = packs * kWidth + thread; i < count; i += kThreads) sum += f(static_cast<double>(widen(x[i])));
  return block_reduce<kThreads>(sum, Sum{}, partials);
}

}  // namespace convoy::kernels::cuda
