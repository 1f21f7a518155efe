// kernels/top_k.h on the GPU, in two launches. An element is chosen if fewer than K others come before it, and its place
// in the result is the number of chosen elements at lower positions. One thread per element counts both. The block reads
// the elements that it compares with through shared memory. The N^2 comparisons of a batch take less time than the
// launches of a sort.
#include "convoy/kernels/top_k.h"

#include <algorithm>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/shared/descending_order.h"

namespace convoy::kernels {
namespace {

constexpr int kTopKBlock = 256;

template <class T>
struct Slab {
  T values[kTopKBlock];
};

/// Calls f(element, position) for x [0], x [1], … x [n - 1] in every thread of the block.
template <class T, class F>
__device__ void for_each_element(const T* x, std::int64_t n, F f) {
  Slab<T>& slab = cuda::shared_memory<Slab<T>>();
  const int thread = static_cast<int>(threadIdx.x);
  for (std::int64_t begin = 0; begin < n; begin += kTopKBlock) {
    const std::int64_t count = n - begin < kTopKBlock ? n - begin : kTopKBlock;
    __syncthreads();
    if (thread < count) slab.values[thread] = x[begin + thread];
    __syncthreads();
    for (int i = 0; i < count; ++i) f(slab.values[i], begin + i);
  }
}

/// Computes is_chosen [i] = 1 if fewer than k elements of x [n] come before x [i], else 0.
template <class T>
__global__ void __launch_bounds__(kTopKBlock)
    choose_kernel(std::int64_t n, std::int64_t k, const T* x, std::int32_t* is_chosen) {
  const std::int64_t own = std::int64_t{blockIdx.x} * kTopKBlock + threadIdx.x;
  const auto value = cuda::widen(x[own < n ? own : n - 1]);
  std::int64_t before = 0;
  for_each_element(x, n, [&](T other, std::int64_t position) {
    before += comes_before(cuda::widen(other), position, value, own) ? 1 : 0;
  });
  if (own < n) is_chosen[own] = before < k ? 1 : 0;
}

/// Writes the positions of the chosen elements in ascending order.
__global__ void __launch_bounds__(kTopKBlock)
    place_kernel(std::int64_t n, const std::int32_t* is_chosen, std::int32_t* positions) {
  const std::int64_t own = std::int64_t{blockIdx.x} * kTopKBlock + threadIdx.x;
  const std::int64_t end = std::min<std::int64_t>((std::int64_t{blockIdx.x} + 1) * kTopKBlock, n);
  std::int64_t place = 0;
  for_each_element(is_chosen, end,
                   [&](std::int32_t other, std::int64_t position) { place += position < own ? other : 0; });
  if (own < n && is_chosen[own] != 0) positions[place] = static_cast<std::int32_t>(own);
}

}  // namespace

void top_k(CudaStream& stream, ConstView x, View positions) {
  const std::int64_t n = x.numel();
  if (positions.numel() == 0) return;
  const cuda::Scratch scratch(stream, static_cast<std::size_t>(n) * sizeof(std::int32_t));
  auto* const is_chosen = scratch.as<std::int32_t>();
  const unsigned blocks = blocks_for(n, kTopKBlock);
  dispatch(cuda::kGpuTypes, x.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks, kTopKBlock, sizeof(Slab<T>), choose_kernel<T>, n, positions.numel(), x.as<T>(),
           is_chosen);
  });
  launch(stream, blocks, kTopKBlock, sizeof(Slab<std::int32_t>), place_kernel, n, is_chosen,
         positions.as<std::int32_t>());
}

}  // namespace convoy::kernels
