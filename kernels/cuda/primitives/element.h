// The element types of CUDA kernels: storage types, compute types, and packs of elements that one instruction
// moves.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <string>

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/base/dtype.h"

namespace convoy::kernels::cuda {

using convoy::compute_t;

/// Converts an element to its compute type, which is exact.
template <class T>
__device__ compute_t<T> widen(T x) {
  return widened(x);
}

/// Converts a result to its storage type. Rounds once, to nearest even.
template <class T>
__device__ T narrow(compute_t<T> x) {
  return static_cast<T>(x);
}

/// The types of arrays on a GPU. f16 and bf16 are computed in f32 and rounded once.
inline constexpr ElementTypes<float, double, float16, bfloat16> kGpuTypes{"a GPU"};
/// The types in which a GPU computes statistics and optimizer steps.
inline constexpr ElementTypes<float, double> kGpuFullTypes{"a GPU"};

inline constexpr int kVectorBytes = 16;  // the widest load or store of a thread

/// Number of elements of type T in the widest load.
template <class T>
inline constexpr int kVectorWidth = kVectorBytes / static_cast<int>(sizeof(T));

/// kWidth adjacent elements that one instruction loads or stores. Their address is a multiple of the pack's
/// size.
template <class T, int kWidth>
struct alignas(kWidth * sizeof(T)) Pack {
  T values[kWidth];
};

template <int kWidth, class T>
__device__ Pack<T, kWidth> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}
/// The same for an array that may not be aligned for packs: then each element is loaded on its own.
/// Reductions use this, so that the elements of a thread, and with them the result's last bits, do not depend
/// on addresses.
template <int kWidth, class T>
__device__ Pack<T, kWidth> load_pack(const T* from, bool is_aligned) {
  if (is_aligned) return load_pack<kWidth>(from);
  Pack<T, kWidth> pack;
  for (int i = 0; i < kWidth; ++i) pack.values[i] = from[i];
  return pack;
}
template <class T, int kWidth>
__device__ void store_pack(T* to, const Pack<T, kWidth>& pack) {
  *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}
/// The same for an array that may not be aligned for packs: then each element is stored on its own.
template <class T, int kWidth>
__device__ void store_pack(T* to, const Pack<T, kWidth>& pack, bool is_aligned) {
  if (is_aligned) return store_pack(to, pack);
  for (int i = 0; i < kWidth; ++i) to[i] = pack.values[i];
}

/// Returns whether `pointer` is aligned for the widest packs.
CONVOY_HOST_DEVICE inline bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % kVectorBytes == 0;
}

}  // namespace convoy::kernels::cuda
