// The loop of every elementwise CUDA kernel; its CPU sister is kernels/cpu/map.h.
#pragma once

#include "kernels/cuda/element.h"
#include "kernels/cuda/launch.h"
#include "kernels/runtime/view.h"

namespace convoy::cuda {

inline constexpr int kMapBlock = 256;  // threads: whole warps, and several blocks fit an SM

/// y = f(x…), or y += f(x…), for the kWidth elements at each pointer, computed in compute_t<T>. Whole packs
/// come in before one goes out, so y may be one of the inputs.
template <Mode kMode, int kWidth, class F, class T, class... X>
__device__ void map_pack(F f, T* y, const X*... x) {
  const auto apply = [&f](Pack<T, kWidth> result, const Pack<X, kWidth>&... in) {
    for (int i = 0; i < kWidth; ++i) {
      const compute_t<T> value = f(widen(in.values[i])...);
      if constexpr (kMode == Mode::add) {
        result.values[i] = narrow<T>(widen(result.values[i]) + value);
      } else {
        result.values[i] = narrow<T>(value);
      }
    }
    return result;
  };
  Pack<T, kWidth> before{};
  if constexpr (kMode == Mode::add) before = load_pack<kWidth>(y);
  store_pack(y, apply(before, load_pack<kWidth>(x)...));
}

/// One thread a pack; the thread at the end takes the n % kWidth last elements one by one.
template <Mode kMode, int kWidth, class F, class T, class... X>
__global__ void __launch_bounds__(kMapBlock) map_kernel(std::int64_t n, F f, T* y, const X*... x) {
  const std::int64_t begin = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (begin + kWidth <= n) {
    map_pack<kMode, kWidth>(f, y + begin, (x + begin)...);
  } else {
    for (std::int64_t i = begin; i < n; ++i) map_pack<kMode, 1>(f, y + i, (x + i)...);
  }
}

template <Mode kMode, class F, class T, class... X>
void launch_map(CudaStream& stream, std::int64_t n, F f, T* y, const X*... x) {
  constexpr int kWidth = kVectorWidth<T>;
  // A slice may begin anywhere; then every element goes alone, which caches make bearable and which is rare.
  if (is_aligned(y) && (is_aligned(x) && ...)) {
    launch(stream, blocks_for(n, kMapBlock * kWidth), kMapBlock, 0, map_kernel<kMode, kWidth, F, T, X...>, n,
           f, y, x...);
  } else {
    launch(stream, blocks_for(n, kMapBlock), kMapBlock, 0, map_kernel<kMode, 1, F, T, X...>, n, f, y, x...);
  }
}

/// y[i] = f(x[i]…), or y[i] += f(x[i]…), over whole arrays of y's floating-point type; f is a struct whose
/// operator() is a template on the type that is computed in. Nothing happens where y is null or empty.
template <class F, class... X>
void map_arrays(CudaStream& stream, F f, const GradView& y, const X&... x) {
  if (!y.wanted() || y.numel() == 0) return;
  dispatch_floating(y.dtype, [&](auto zero) {
    using T = decltype(zero);
    if (y.mode == Mode::add) {
      launch_map<Mode::add>(stream, y.numel(), f, y.template as<T>(), x.template as<T>()...);
    } else {
      launch_map<Mode::write>(stream, y.numel(), f, y.template as<T>(), x.template as<T>()...);
    }
  });
}

/// map_arrays with its arguments in the kernels' order, so that the function stands last.
template <class F>
void map(CudaStream& stream, const ConstView& x, const GradView& y, F f) {
  map_arrays(stream, f, y, x);
}
template <class F>
void map(CudaStream& stream, const ConstView& x, const ConstView& y, const GradView& z, F f) {
  map_arrays(stream, f, z, x, y);
}

}  // namespace convoy::cuda
