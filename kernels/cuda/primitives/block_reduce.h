// Reductions within a warp and a block. The order of the operations is fixed and no atomics are used, so
// results are reproducible bit for bit.
#pragma once

#include <cmath>
#include <type_traits>

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

/// A sum that also adds what each addition in C loses (Knuth, The Art of Computer Programming, volume 2, 4.2.2,
/// theorem B): in f32 about as precise as f64, of which most GPUs have a 64th of the rate. f64 is added as it is.
template <class C>
struct CompensatedSum {
  C sum{0}, lost{0};
  double rest = 0;  // squares beyond the range of C

  __device__ void add(C x, C x_has_lost = 0) {
    const C before = sum;
    sum += x;
    const C added = sum - before;
    lost += x_has_lost;
    if constexpr (!std::is_same_v<C, double>) lost += (before - (sum - added)) + (x - added);
  }
  __device__ void add_square(C x) {
    const C size = x < 0 ? -x : x;
    const C square = std::fma(x, x, C{0});  // a multiplication would be fused with the addition
    // Within these bounds, neither the square nor what its rounding loses leaves the range of f32.
    if (size < C{0x1p50} && (size > C{0x1p-50} || size == 0))
      add(square, std::fma(x, x, -square));
    else
      rest += static_cast<double>(x) * static_cast<double>(x);
  }
  __device__ double value() const {  // infinity loses NaN
    return static_cast<double>(sum) + (lost == lost ? static_cast<double>(lost) : 0) + rest;
  }
};

/// Calls f(x[i], sum) for all count elements, which adds to a sum, and returns the total to all kThreads threads of
/// a one-dimensional block. The order of the sum depends on count and T only. All threads must call it.
template <int kThreads, class T, class F>
__device__ double block_sum(const T* x, int count, F f, BlockPartials<double, kThreads>& partials) {
  constexpr int kWidth = kVectorWidth<T>;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool x_is_aligned = is_aligned(x);
  const int packs = count / kWidth;
  CompensatedSum<compute_t<T>> sum;
#pragma unroll 4
  for (int pack = thread; pack < packs; pack += kThreads) {
    const auto in = load_pack<kWidth>(x + pack * kWidth, x_is_aligned);
    for (int i = 0; i < kWidth; ++i) f(widen(in.values[i]), sum);
  }
#pragma unroll 4
  for (int i = packs * kWidth + thread; i < count; i += kThreads) f(widen(x[i]), sum);
  return block_reduce<kThreads>(sum.value(), Sum{}, partials);
}

}  // namespace convoy::kernels::cuda
