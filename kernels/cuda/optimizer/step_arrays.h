// How the kernels of optimizers read gradients and write low-precision copies, whose types are known at run
// time only.
#pragma once

#include "convoy/kernels/base/convert.h"
#include "convoy/kernels/cuda/primitives/element.h"

namespace convoy::kernels::cuda {

/// Loads a pack from index `at` on, and converts it to T.
template <class T, int kWidth, class From>
__device__ Pack<T, kWidth> load_converted(const void* from, std::int64_t at, bool is_aligned = true) {
  const auto in = load_pack<kWidth>(static_cast<const From*>(from) + at, is_aligned);
  Pack<T, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.values[i] = static_cast<T>(widen(in.values[i]));
  return out;
}

/// Loads a pack of a gradient of type bf16, f16 or T.
template <class T, int kWidth>
__device__ Pack<T, kWidth> load_gradient(const void* gradient, DType dtype, std::int64_t at,
                                         bool is_aligned = true) {
  if (dtype == DType::bf16) return load_converted<T, kWidth, bfloat16>(gradient, at, is_aligned);
  if (dtype == DType::f16) return load_converted<T, kWidth, float16>(gradient, at, is_aligned);
  return load_converted<T, kWidth, T>(gradient, at, is_aligned);
}

/// Stores a pack in a low-precision copy, rounded to Half.
template <class Half, class T, int kWidth>
__device__ void store_rounded(void* low_precision_copy, std::int64_t at, const Pack<T, kWidth>& from,
                              bool is_aligned = true) {
  Pack<Half, kWidth> out;
  for (int i = 0; i < kWidth; ++i) out.values[i] = converted<Half>(from.values[i]);
  store_pack(static_cast<Half*>(low_precision_copy) + at, out, is_aligned);
}

/// Stores a pack in a low-precision copy of type f16 or bf16. Does nothing if there is no copy.
template <class T, int kWidth>
__device__ void store_copy(void* low_precision_copy, DType dtype, std::int64_t at,
                           const Pack<T, kWidth>& from, bool is_aligned = true) {
  if (low_precision_copy == nullptr) return;
  if (dtype == DType::f16) {
    store_rounded<float16>(low_precision_copy, at, from, is_aligned);
  } else {
    store_rounded<bfloat16>(low_precision_copy, at, from, is_aligned);
  }
}

}  // namespace convoy::kernels::cuda
