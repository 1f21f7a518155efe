// kernels/gather.h on the GPU. Reading moves packs of up to 16 bytes. In a sum, each thread has a destination and reads all
// indices. So the order is fixed without atomics, and a sum with K indices costs K comparisons for each pack, which networks
// for images have few of.
#include "convoy/kernels/gather.h"

#include <limits>

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/cuda/primitives/windows.h"

namespace convoy::kernels {
namespace {

using cuda::Pack;

constexpr int kGatherBlock = 256;

/// Computes y[o, k, d] = x[o, indices[k], d] for packs. The index of a pack counts through [O, K, D].
template <class T, int kWidth>
__global__ void __launch_bounds__(kGatherBlock)
    select_kernel(std::int64_t n, std::int64_t x_rows, cuda::Divisor rows, cuda::Divisor columns,
                  const std::int32_t* indices, const T* x, T* y) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (index >= n) return;
  const std::int64_t row = columns.quotient(index);
  const std::int64_t slab = rows.quotient(row);
  const std::int32_t chosen = indices[row - slab * rows.value()];
  const bool is_valid = chosen >= 0 && chosen < x_rows;
  const std::int64_t from = (slab * x_rows + chosen) * columns.value() + index - row * columns.value();
  Pack<T, kWidth> pack;
  if (is_valid) {
    pack = cuda::load_pack<kWidth>(x + from * kWidth);
  } else {
    for (int i = 0; i < kWidth; ++i) pack.values[i] = converted<T>(std::numeric_limits<float>::quiet_NaN());
  }
  cuda::store_pack(y + index * kWidth, pack);
}

/// Writes sums to a destination, or adds them to it.
template <class T, class C, int kWidth>
__device__ void store_sums(const cuda::CompensatedSum<C> (&sums)[kWidth], GradMode mode, T* to) {
  Pack<T, kWidth> total = mode == GradMode::accumulate ? cuda::load_pack<kWidth>(to) : Pack<T, kWidth>{};
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    const C before = mode == GradMode::accumulate ? cuda::widen(total.values[i]) : C{0}, lost = sums[i].lost;
    total.values[i] =
        cuda::narrow<T>(before + (sums[i].sum + (lost == lost ? lost : C{0})));  // infinity loses NaN
  }
  cuda::store_pack(to, total);
}

/// Sums the rows of dy [O, terms, D] at the indices of each row of dx [O, V, D]. A thread has a pack of dx.
template <class T, int kWidth>
__global__ void __launch_bounds__(kGatherBlock)
    select_sums_kernel(std::int64_t n, int terms, cuda::Divisor rows, cuda::Divisor columns, GradMode mode,
                       const std::int32_t* indices, const T* dy, T* dx) {
  const std::int64_t index = std::int64_t{blockIdx.x} * kGatherBlock + threadIdx.x;
  if (index >= n) return;
  const std::int64_t row = columns.quotient(index), slab = rows.quotient(row);
  const auto destination = static_cast<std::int32_t>(row - slab * rows.value());
  const T* from = dy + (slab * terms * columns.value() + index - row * columns.value()) * kWidth;
  cuda::CompensatedSum<cuda::compute_t<T>> sums[kWidth];
  for (int k = 0; k < terms; ++k, from += columns.value() * kWidth) {
    if (indices[k] != destination) continue;
    const auto term = cuda::load_pack<kWidth>(from);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sums[i].add(cuda::widen(term.values[i]));
  }
  store_sums(sums, mode, dx + index * kWidth);
}

}  // namespace

void index_select_forward(CudaStream& stream, ConstView x, ConstView indices, View y) {
  if (y.numel() == 0) return;
  dispatch(kAllTypes, y.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(y.shape[2], x.data, y.data), [&](auto width) {
      const std::int64_t n = y.numel() / width;
      launch(stream, blocks_for(n, kGatherBlock), kGatherBlock, 0, select_kernel<T, width()>, n, x.shape[1],
             cuda::Divisor(y.shape[1]), cuda::Divisor(y.shape[2] / width), indices.as<std::int32_t>(),
             x.as<T>(), y.as<T>());
    });
  });
}

void index_select_backward(CudaStream& stream, ConstView dy, ConstView indices, GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  dispatch(cuda::kGpuTypes, dx.dtype, [&](auto zero) {
    using T = decltype(zero);
    cuda::dispatch_width<T>(cuda::comes_in_packs<T>(dx.shape[2], dy.data, dx.data), [&](auto width) {
      const std::int64_t n = dx.numel() / width;
      launch(stream, blocks_for(n, kGatherBlock), kGatherBlock, 0, select_sums_kernel<T, width()>, n,
             static_cast<int>(indices.numel()), cuda::Divisor(dx.shape[1]),
             cuda::Divisor(dx.shape[2] / width), dx.mode, indices.as<std::int32_t>(), dy.as<T>(), dx.as<T>());
    });
  });
}

}  // namespace convoy::kernels
