// Multiply-add that uses one FMA instruction if the processor has it.
#pragma once

#include <cmath>

#include "convoy/kernels/base/dtype.h"

namespace convoy {

/// Returns a b + c, rounded once on processors with FMA and twice on others. Use it only for polynomials
/// whose error bound holds in both cases. All other code rounds a product before it is added, on every
/// processor.
CONVOY_HOST_DEVICE inline float multiply_add(float a, float b, float c) {
#if defined(FP_FAST_FMAF) || defined(__CUDA_ARCH__)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace convoy
