// The element types of CUDA kernels: what is stored, what is computed in, and how many neighbours one
// instruction moves.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "kernels/convert.h"
#include "kernels/runtime/dtype.h"

namespace convoy::cuda {

using convoy::compute_t;

template <class T>
__device__ compute_t<T> widen(T x) {
  return widened(x);
}

/// Rounded once, to nearest even.
template <class T>
__device__ T narrow(compute_t<T> x) {
  return static_cast<T>(x);
}

/// dispatch_floating(x.dtype, [&](auto zero) { using T = decltype(zero); … }): f32, f64, f16, bf16.
template <class F>
decltype(auto) dispatch_floating(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f32: return f(float{});
    case DType::f64: return f(double{});
    case DType::f16: return f(float16{});
    case DType::bf16: return f(bfloat16{});
    default:
      throw UsageError("a CUDA kernel computes on floating-point numbers; found " +
                       std::string(name_of(dtype)));
  }
}

inline constexpr int kVectorBytes = 16;  // the widest load or store of one thread

/// Neighbours of type T in one widest load.
template <class T>
inline constexpr int kVectorWidth = kVectorBytes / static_cast<int>(sizeof(T));

/// kWidth neighbours that one instruction moves; their address is a multiple of their size.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Pack {
  T values[kWidth];
};

template <int kWidth, class T>
__device__ Pack<T, kWidth> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
template <class T, int kWidth>
__device__ void store_pack(T* to, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

/// Whether packs of the widest kind may begin here.
inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace convoy::cuda
