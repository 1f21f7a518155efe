// kernels/broadcast.h on the GPU. Arrays of equal shapes are processed in packs by `map`; otherwise each thread
// computes one element and finds its operands by an IndexMap.
#include "convoy/kernels/broadcast.h"

#include <utility>

#include "convoy/kernels/cuda/primitives/index_map.h"
#include "convoy/kernels/cuda/primitives/map.h"
#include "convoy/kernels/cuda/primitives/normal_distribution.h"
#include "convoy/kernels/shared/broadcast_functions.h"

namespace convoy::kernels {
namespace {

using cuda::IndexMap, cuda::compute_t, cuda::kGpuTypes, cuda::narrow, cuda::widen;

constexpr int kBlock = 256;

/// Chooses x where a condition holds, else y.
struct Choose {
  template <class T>
  __device__ T operator()(std::uint8_t condition, T x, T y) const {
    return condition != 0 ? x : y;
  }
};

/// Computes f of the elements of x at these offsets.
template <class F, class... X, std::size_t... kInput>
__device__ auto value_at(F f, const std::int64_t* offsets, std::index_sequence<kInput...>, const X*... x) {
  return f(widen(x[offsets[kInput]])...);
}

/// Array 0 of the map is z, the others are the inputs in their order.
template <class F, class T, class... X>
__global__ void __launch_bounds__(kBlock) broadcast_kernel(std::int64_t n, IndexMap<1 + sizeof...(X)> map,
                                                           F f, GradMode mode, T* z, const X*... x) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kBlock + threadIdx.x;
  if (i >= n) return;
  std::int64_t at[1 + sizeof...(X)];
  map.offsets_of(i, at);
  const compute_t<T> value = value_at(f, at + 1, std::index_sequence_for<X...>{}, x...);
  T& out = z[at[0]];
  out = narrow<T>(mode == GradMode::accumulate ? widen(out) + value : value);
}

/// Enqueues z = f(x…), or +=, for inputs with these types that are broadcast to the shape of z.
template <class T, class... X, class F, class... Views>
void broadcast(CudaStream& stream, F f, const GradView& z, const Views&... x) {
  const IndexMap<1 + sizeof...(X)> map(LoopNest<1 + sizeof...(X)>(
      z.shape, {Strides::row_major(z.shape), Strides::broadcast(x.shape, z.shape)...}));
  launch(stream, blocks_for(z.numel(), kBlock), kBlock, 0, broadcast_kernel<F, T, X...>, z.numel(), map, f,
         z.mode, z.as<T>(), x.template as<X>()...);
}

}  // namespace

void binary(CudaStream& stream, BinaryOp op, ConstView x, ConstView y, GradView z) {
  if (!z.wanted() || z.numel() == 0) return;
  dispatch_function<cuda::GpuMath>(op, [&](auto function) {
    if (x.shape == z.shape && y.shape == z.shape) return cuda::map(stream, x, y, z, function);
    dispatch(kGpuTypes, z.dtype, [&](auto zero) {
      using T = decltype(zero);
      broadcast<T, T, T>(stream, function, z, x, y);
    });
  });
}

void binary_backward(CudaStream& stream, BinaryGradient gradient, ConstView dz, ConstView x, ConstView y,
                     GradView dx) {
  if (!dx.wanted() || dx.numel() == 0) return;
  dispatch_function<cuda::GpuMath>(gradient, [&](auto function) {
    dispatch(kGpuTypes, dx.dtype, [&](auto zero) {
      using T = decltype(zero);
      broadcast<T, T, T, T>(stream, function, dx, dz, x, y);
    });
  });
}

void where(CudaStream& stream, ConstView condition, ConstView x, ConstView y, GradView z) {
  if (!z.wanted() || z.numel() == 0) return;
  dispatch(kGpuTypes, z.dtype, [&](auto zero) {
    using T = decltype(zero);
    broadcast<T, std::uint8_t, T, T>(stream, Choose{}, z, condition, x, y);
  });
}

}  // namespace convoy::kernels
