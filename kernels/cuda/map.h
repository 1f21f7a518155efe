// The loop of every elementwise CUDA kernel; its CPU sister is kernels/cpu/map.h.
#pragma once

#include <cstdint>

#include "kernels/cuda/launch.h"
#include "kernels/runtime/view.h"

namespace convoy::cuda {

inline constexpr int kMapBlock = 256;    // threads: whole warps, and several blocks fit an SM
inline constexpr int kVectorBytes = 16;  // the widest load or store of one thread

/// kWidth neighbours that one instruction moves.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Pack {
  T values[kWidth];
};

/// y = f(x…), or y += f(x…), for the kWidth elements at each pointer. Whole packs come in before one goes
/// out, so y may be one of the inputs.
template <Mode kMode, int kWidth, class F, class T, class... X>
__device__ void map_pack(F f, T* y, const X*... x) {
  auto* const out = reinterpret_cast<Pack<T, kWidth>*>(y);
  const auto apply = [&f](Pack<T, kWidth> result, const Pack<X, kWidth>... in) {
    for (int i = 0; i < kWidth; ++i) {
      if constexpr (kMode == Mode::add) {
        result.values[i] += f(in.values[i]...);
      } else {
        result.values[i] = f(in.values[i]...);
      }
    }
    return result;
  };
  const Pack<T, kWidth> before = kMode == Mode::add ? *out : Pack<T, kWidth>{};
  *out = apply(before, *reinterpret_cast<const Pack<X, kWidth>*>(x)...);
}

/// One thread a pack; the thread at the end takes the n % kWidth last elements one by one.
template <Mode kMode, int kWidth, class F, class T, class... X>
__global__ void map_kernel(std::int64_t n, F f, T* y, const X*... x) {
  const std::int64_t begin = (std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * kWidth;
  if (begin + kWidth <= n) {
    map_pack<kMode, kWidth>(f, y + begin, (x + begin)...);
  } else {
    for (std::int64_t i = begin; i < n; ++i) map_pack<kMode, 1>(f, y + i, (x + i)...);
  }
}

inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

template <Mode kMode, class F, class T, class... X>
void launch_map(CudaStream& stream, std::int64_t n, F f, T* y, const X*... x) {
  constexpr int kWidth = kVectorBytes / static_cast<int>(sizeof(T));
  // A slice may begin anywhere; then every element goes alone, which caches make bearable and which is rare.
  if (is_aligned(y) && (is_aligned(x) && ...)) {
    launch(stream, blocks_for(n, kMapBlock * kWidth), kMapBlock, 0, map_kernel<kMode, kWidth, F, T, X...>, n,
           f, y, x...);
  } else {
    launch(stream, blocks_for(n, kMapBlock), kMapBlock, 0, map_kernel<kMode, 1, F, T, X...>, n, f, y, x...);
  }
}

/// y[i] = f(x[i]…), or y[i] += f(x[i]…), over whole arrays of y's element type, f32 or f64; f is a struct
/// whose operator() is a template on that type. Nothing happens where y is null or empty.
template <class F, class... X>
void map(CudaStream& stream, F f, const GradView& y, const X&... x) {
  if (!y.wanted() || y.numel() == 0) return;
  const auto run = [&](auto zero) {
    using T = decltype(zero);
    if (y.mode == Mode::add) {
      launch_map<Mode::add>(stream, y.numel(), f, y.template as<T>(), x.template as<T>()...);
    } else {
      launch_map<Mode::write>(stream, y.numel(), f, y.template as<T>(), x.template as<T>()...);
    }
  };
  if (y.dtype == DType::f32) return run(float{});
  if (y.dtype == DType::f64) return run(double{});
  throw UsageError("elementwise CUDA kernels compute in f32 and f64; found " + std::string(name_of(y.dtype)));
}

}  // namespace convoy::cuda
