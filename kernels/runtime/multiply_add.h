// A product and a sum in one instruction, where the processor has it.
#pragma once

#include <cmath>

namespace convoy {

/// a b + c: rounded once where that is one instruction (FMA), else twice. For polynomials whose error bound
/// holds either way; elsewhere products are rounded before they are added, on every processor.
inline float multiply_add(float a, float b, float c) {
#if defined(FP_FAST_FMAF)
  return std::fma(a, b, c);
#else
  return a * b + c;
#endif
}

}  // namespace convoy
