// The sum of an array in one block, in f64 and in a fixed order.
#pragma once

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/element.h"

namespace convoy::kernels::cuda {

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
