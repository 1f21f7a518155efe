// Elementwise operations. All arguments have equal shapes unless stated otherwise. The caller (engine/ops)
// checks the shapes; kernels do not. Outputs may alias inputs of the same type. The types are f32, f64, bf16
// and, on a GPU, f16. f16 and bf16 are computed in f32 and rounded once. fill,
// assign and cast accept every type.
#pragma once

#include <cstdint>
#include <span>

#include "convoy/kernels/base/random.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// z = a x + b y
void add(CpuStream&, ConstView x, ConstView y, View z, double a = 1, double b = 1);
void add(CudaStream&, ConstView x, ConstView y, View z, double a = 1, double b = 1);

// y = a x, or y += a x with GradMode::accumulate. a = 1 copies or adds x.
void scale(CpuStream&, ConstView x, double a, GradView y);
void scale(CudaStream&, ConstView x, double a, GradView y);

// y = x + a
void add_scalar(CpuStream&, ConstView x, double a, View y);
void add_scalar(CudaStream&, ConstView x, double a, View y);

// y = value, converted as by cast; any element type
void fill(CpuStream&, double value, View y);
void fill(CudaStream&, double value, View y);

/// An array to set by assign().
struct Assignment {
  View to;              // any element type
  ConstView from = {};  // of the same type and size, and without overlap; null: `value` is written
  double value = 0;     // converted as by cast
};
// Sets every array. A GPU needs one launch for a hundred arrays, where copies and fills need one each. No
// array may overlap another one that is written.
void assign(CpuStream&, std::span<const Assignment> arrays);
void assign(CudaStream&, std::span<const Assignment> arrays);

// y = x, converted to the element type of y and rounded to nearest even; any pair of types. Conversion to an
// integer type saturates and maps NaN to 0.
void cast(CpuStream&, ConstView x, View y);
void cast(CudaStream&, ConstView x, View y);

/// A function y = f(x) of one element. Its derivative is computed from y where y suffices (uses_output()),
/// else from x.
enum class UnaryOp : std::uint8_t {
  relu,         // y = max(x, 0), and NaN for NaN   dx = 0 where y <= 0, else dy, also where y is NaN
  gelu,         // y = x Phi(x), where Phi is the normal distribution function (exact, by erf; Hendrycks and
                // Gimpel, arXiv:1606.08415)
  silu,         // y = x sigmoid(x)
  hardswish,    // y = x min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244)
  tanh,         // y = tanh(x)                      dx = dy (1 - y^2)
  sigmoid,      // y = 1 / (1 + exp(-x))            dx = dy y (1 - y)
  exp,          // y = exp(x)                       dx = dy y
  log,          // y = log(x), the natural one      dx = dy / x
  sqrt,         // y = sqrt(x)                      dx = dy / (2 y)
  abs,          // y = |x|                          dx = dy sign(x), 0 at 0 and NaN
  pow,          // y = x^p, NaN for roots of -Inf   dx = dy p x^(p - 1), 0 everywhere if p = 0
  clamp,        // y = min(max(x, p), q)            dx = dy where p < x < q, else 0
  hardtanh,     // the same, NaN for NaN            dx = 0 where x <= p or x >= q, else dy
  leaky_relu,   // y = x where x > 0, else p x (Maas et al., ICML 2013)
  elu,          // y = x where x > 0, else p (e^x - 1) (Clevert et al., arXiv:1511.07289)
  softplus,     // y = log(1 + e^(p x)) / p, and x where p x > q (Dugas et al., NIPS 2000)
  gelu_tanh,    // y = x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2 (arXiv:1606.08415, section 2)
  hardsigmoid,  // y = min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244)
};
/// Returns whether unary_backward() takes the output y instead of the input x.
constexpr bool uses_output(UnaryOp op) {
  return op == UnaryOp::relu || op == UnaryOp::tanh || op == UnaryOp::sigmoid || op == UnaryOp::exp ||
         op == UnaryOp::sqrt;
}

/// The numbers p and q of a UnaryOp that has them.
struct UnaryNumbers {
  double p = 0, q = 0;
};

// y = f(x)
void unary_forward(CpuStream&, UnaryOp op, ConstView x, View y, UnaryNumbers numbers = {});
void unary_forward(CudaStream&, UnaryOp op, ConstView x, View y, UnaryNumbers numbers = {});

// dx = dy f'(x), or +=. `saved` is y if uses_output(op), else x.
void unary_backward(CpuStream&, UnaryOp op, ConstView dy, ConstView saved, GradView dx,
                    UnaryNumbers numbers = {});
void unary_backward(CudaStream&, UnaryOp op, ConstView dy, ConstView saved, GradView dx,
                    UnaryNumbers numbers = {});

// Inverted dropout (Srivastava et al., JMLR 2014): y = x / (1 - p) with probability 1 - p, else 0. x is [N,
// …] and sample_ids i32 [N]. Element e of the sample with id s is dropped if to_uniform(random.words(s, e /
// 4)[e % 4]) < p. The mask thus does not depend on the batch, rank or device. The backward pass is the same
// call with dy as x.
void dropout(CpuStream&, ConstView x, ConstView sample_ids, double p, Random random, GradView y);
void dropout(CudaStream&, ConstView x, ConstView sample_ids, double p, Random random, GradView y);

}  // namespace convoy::kernels
