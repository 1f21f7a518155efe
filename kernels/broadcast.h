// Elementwise operations on arrays that are broadcast to a common shape by NumPy's rules: axes are aligned at
// the last one, and an axis that is missing or of size 1 is repeated. The types are f32, f64, bf16 and, on a
// GPU, f16; bf16 and f16 are computed in f32 and rounded once. NaN of any operand is propagated.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

enum class BinaryOp : std::uint8_t { add, sub, mul, div, maximum, minimum };

// z = x op y
void binary(CpuStream&, BinaryOp op, ConstView x, ConstView y, GradView z);
void binary(CudaStream&, BinaryOp op, ConstView x, ConstView y, GradView z);

// The gradients that are not products or quotients. All arguments are broadcast to the shape of dx.
enum class BinaryGradient : std::uint8_t {
  divisor,  // -dz x / y^2, the gradient of x / y for y
  greater,  // 0 if x < y, dz / 2 if x = y, else dz: the gradient of max(x, y) for x. NaN gives dz to both
  less,     // 0 if x > y, dz / 2 if x = y, else dz: the gradient of min(x, y) for x. NaN gives dz to both
};
void binary_backward(CpuStream&, BinaryGradient gradient, ConstView dz, ConstView x, ConstView y,
                     GradView dx);
void binary_backward(CudaStream&, BinaryGradient gradient, ConstView dz, ConstView x, ConstView y,
                     GradView dx);

// z = x where condition (u8) is not 0, else y
void where(CpuStream&, ConstView condition, ConstView x, ConstView y, GradView z);
void where(CudaStream&, ConstView condition, ConstView x, ConstView y, GradView z);

}  // namespace convoy::kernels
