// Elementwise operations on arrays that are broadcast to a common shape by NumPy's rules: axes are aligned at
// the last one, and an axis that is missing or of size 1 is repeated. The types are f32, f64, bf16 and, on a
// GPU, f16; bf16 and f16 are computed in f32 and rounded once. NaN of any operand is propagated.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

enum class BinaryOp : std::uint8_t {
  add,
  sub,
  mul,
  div,
  maximum,
  minimum,
  squared_error,                     // (x - y)^2
  binary_cross_entropy_with_logits,  // -y log s(x) - (1 - y) log(1 - s(x)), with s the logistic sigmoid
  kl_divergence,                     // y (log y - x), and 0 for y = 0: x is a log-probability
};

// z = x op y
void binary(CpuStream&, BinaryOp op, ConstView x, ConstView y, GradView z);
void binary(CudaStream&, BinaryOp op, ConstView x, ConstView y, GradView z);

// The gradients that are not products or quotients. All arguments are broadcast to the shape of dx. But for `divisor`, x is
// the operand whose gradient is computed, and y the other one.
enum class BinaryGradient : std::uint8_t {
  divisor,        // -dz x / y^2, the gradient of x / y for y
  greater,        // 0 if x < y, dz / 2 if x = y, else dz: that of a maximum. NaN gives dz to both
  less,           // 0 if x > y, dz / 2 if x = y, else dz: that of a minimum. NaN gives dz to both
  squared_error,  // 2 dz (x - y)
  logits,         // dz (s(x) - y), of binary_cross_entropy_with_logits
  target_of_kl,   // dz (log x + 1 - y), and 0 for x = 0, of kl_divergence
  negative,  // -dz y, of the target of binary_cross_entropy_with_logits and of the log-probability of kl_divergence
};
void binary_backward(CpuStream&, BinaryGradient gradient, ConstView dz, ConstView x, ConstView y,
                     GradView dx);
void binary_backward(CudaStream&, BinaryGradient gradient, ConstView dz, ConstView x, ConstView y,
                     GradView dx);

// z = x where condition (u8) is not 0, else y
void where(CpuStream&, ConstView condition, ConstView x, ConstView y, GradView z);
void where(CudaStream&, ConstView condition, ConstView x, ConstView y, GradView z);

}  // namespace convoy::kernels
