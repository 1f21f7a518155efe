// kernels/broadcast.h on the GPU. Arrays of equal shapes are processed in packs by `map`; otherwise each thread
// computes one element and finds its operands by an IndexMap.
#include "convoy/kernels/broadcast.h"

#include "convoy/kernels/cuda/primitives/index_map.h"
#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"
#include "convoy/kernels/shared/broadcast_functions.h"

namespace convoy::kernels {
namespace {

using cuda::IndexMap, cuda::compute_t, cuda::kGpuTypes, cuda::narrow, cuda::widen;

constexpr int kBlock = 256;

template <class T>
__device__ void store(GradMode mode, T& out, compute_t<T> value) {
  out = narrow<T>(mode == GradMode::accumulate ? widen(out) + value : value);
}

/// Array 0 of the map is z, array 1 is x and array 2 is y.
template <class F, class T>
__global__ void __launch_bounds__(kBlock)
    binary_kernel(std::int64_t n, IndexMap<3> map, F f, GradMode mode, const T* x, const T* y, T* z) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= n) return;
  std::int64_t at[3];
  map.offsets_of(i, at);
  store(mode, z[at[0]], f(widen(x[at[1]]), widen(y[at[2]])));
}

template <class F, class T>
__global__ void __launch_bounds__(kBlock) gradient_kernel(std::int64_t n, IndexMap<4> map, F f, GradMode mode,
                                                          const T* dz, const T* x, const T* y, T* dx) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= n) return;
  std::int64_t at[4];
  map.offsets_of(i, at);
  store(mode, dx[at[0]], f(widen(dz[at[1]]), widen(x[at[2]]), widen(y[at[3]])));
}

template <class T>
__global__ void __launch_bounds__(kBlock)
    where_kernel(std::int64_t n, IndexMap<4> map, GradMode mode, const std::uint8_t* condition, const T* x,
                 const T* y, T* z) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= n) return;
  std::int64_t at[4];
  map.offsets_of(i, at);
  store(mode, z[at[0]], widen(condition[at[1]] != 0 ? x[at[2]] : y[at[3]]));
}

/// Returns the map of an output and of inputs that are broadcast to its shape.
template <class... X>
IndexMap<1 + sizeof...(X)> map_of(const View& z, const X&... x) {
  return IndexMap<1 + sizeof...(X)>(LoopNest<1 + sizeof...(X)>(
      z.shape, {Strides::row_major(z.shape), Strides::broadcast(x.shape, z.shape)...}));
}

}  // namespace

void binary(CudaStream& stream, BinaryOp op, ConstView x, ConstView y, GradView z) {
  const std::int64_t n = z.numel();
  if (!z.wanted() || n == 0) return;
  dispatch_function<cuda::GpuMath>(op, [&](auto function) {
    if (x.shape == z.shape && y.shape == z.shape) return cuda::map(stream, x, y, z, function);
    dispatch(kGpuTypes, z.dtype, [&](auto zero) {
      using T = decltype(zero);
      launch(stream, blocks_for(n, kBlock), kBlock, 0, binary_kernel<decltype(function), T>, n,
             map_of(z, x, y), function, z.mode, x.as<T>(), y.as<T>(), z.as<T>());
    });
  });
}

void binary_backward(CudaStream& stream, BinaryGradient gradient, ConstView dz, ConstView x, ConstView y,
                     GradView dx) {
  const std::int64_t n = dx.numel();
  if (!dx.wanted() || n == 0) return;
  dispatch_function<cuda::GpuMath>(gradient, [&](auto function) {
    dispatch(kGpuTypes, dx.dtype, [&](auto zero) {
      using T = decltype(zero);
      launch(stream, blocks_for(n, kBlock), kBlock, 0, gradient_kernel<decltype(function), T>, n,
             map_of(dx, dz, x, y), function, dx.mode, dz.as<T>(), x.as<T>(), y.as<T>(), dx.as<T>());
    });
  });
}

void where(CudaStream& stream, ConstView condition, ConstView x, ConstView y, GradView z) {
  const std::int64_t n = z.numel();
  if (!z.wanted() || n == 0) return;
  dispatch(kGpuTypes, z.dtype, [&](auto zero) {
    using T = decltype(zero);
    launch(stream, blocks_for(n, kBlock), kBlock, 0, where_kernel<T>, n, map_of(z, condition, x, y), z.mode,
           condition.as<std::uint8_t>(), x.as<T>(), y.as<T>(), z.as<T>());
  });
}

}  // namespace convoy::kernels
