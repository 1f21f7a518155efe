// The value that batch norm computes before a residual and an activation, and the ReLU.
#pragma once

#include <cmath>
#include <type_traits>

#include "convoy/kernels/cuda/primitives/element.h"

namespace convoy::kernels::cuda {

/// Returns (x - mean) factor + offset. The backward pass repeats this to learn the sign of the forward pass's
/// result, so both must round alike. Therefore the multiplication and the addition are one operation with one
/// rounding, and not left to the compiler to contract.
template <class C>
__device__ C normalized(C x, C mean, C factor, C offset) {
  return std::fma(x - mean, factor, offset);
}

/// Returns max(x, 0). NaN stays NaN.
template <class C>
__device__ C relu(C x) {
  return C{0} > x ? C{0} : x;  // this operand order propagates NaN
}

/// Returns whether narrow<T>(x) > 0. Compares x with half of the smallest positive T, which rounds to 0, so
/// that x need not be rounded.
template <class T>
__device__ bool is_positive(compute_t<T> x) {
  if constexpr (std::is_same_v<T, float16>) return x > 0x1p-25F;
  if constexpr (std::is_same_v<T, bfloat16>) return x > 0x1p-134F;
  return x > 0;
}

}  // namespace convoy::kernels::cuda
