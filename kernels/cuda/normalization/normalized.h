// The value that batch norm computes before a residual and an activation, and the ReLU.
#pragma once

#include <cmath>

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

}  // namespace convoy::kernels::cuda
