// Elementwise operations. Shapes of all arguments are equal unless said otherwise; sizes are checked by the
// caller (engine/ops), kernels assume. Outputs may alias inputs of the same type. f32, f64, and half types
// (the CPU: bf16 only), computed in f32 and rounded once; fill and cast take every type.
#pragma once

#include "kernels/random.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

// z = a x + b y. The sum of two tensors, and of two gradients.
void add(CpuStream&, ConstView x, ConstView y, View z, double a = 1, double b = 1);
void add(CudaStream&, ConstView x, ConstView y, View z, double a = 1, double b = 1);

// z = x y
void mul(CpuStream&, ConstView x, ConstView y, GradView z);
void mul(CudaStream&, ConstView x, ConstView y, GradView z);

// y = a x; with Mode::add, y += a x. A copy where a = 1.
void scale(CpuStream&, ConstView x, double a, GradView y);
void scale(CudaStream&, ConstView x, double a, GradView y);

// y = value, converted as cast does; any element type
void fill(CpuStream&, double value, View y);
void fill(CudaStream&, double value, View y);

// y = x in y's element type, rounded to nearest even; any pair of element types. Integers saturate, NaN
// becomes 0.
void cast(CpuStream&, ConstView x, View y);
void cast(CudaStream&, ConstView x, View y);

// Activations. Each backward names what it needs: the output y where that suffices (relu, tanh, sigmoid),
// else x.

// y = max(x, 0)            dx = dy [y > 0]
void relu_forward(CpuStream&, ConstView x, View y);
void relu_forward(CudaStream&, ConstView x, View y);
void relu_backward(CpuStream&, ConstView dy, ConstView y, GradView dx);
void relu_backward(CudaStream&, ConstView dy, ConstView y, GradView dx);

// y = x Phi(x), Phi the normal distribution (the exact form, by erf: Hendrycks and Gimpel, arXiv:1606.08415)
void gelu_forward(CpuStream&, ConstView x, View y);
void gelu_forward(CudaStream&, ConstView x, View y);
void gelu_backward(CpuStream&, ConstView dy, ConstView x, GradView dx);
void gelu_backward(CudaStream&, ConstView dy, ConstView x, GradView dx);

// y = x sigmoid(x)
void silu_forward(CpuStream&, ConstView x, View y);
void silu_forward(CudaStream&, ConstView x, View y);
void silu_backward(CpuStream&, ConstView dy, ConstView x, GradView dx);
void silu_backward(CudaStream&, ConstView dy, ConstView x, GradView dx);

// y = tanh(x)              dx = dy (1 - y^2)
void tanh_forward(CpuStream&, ConstView x, View y);
void tanh_forward(CudaStream&, ConstView x, View y);
void tanh_backward(CpuStream&, ConstView dy, ConstView y, GradView dx);
void tanh_backward(CudaStream&, ConstView dy, ConstView y, GradView dx);

// y = 1 / (1 + exp(-x))    dx = dy y (1 - y)
void sigmoid_forward(CpuStream&, ConstView x, View y);
void sigmoid_forward(CudaStream&, ConstView x, View y);
void sigmoid_backward(CpuStream&, ConstView dy, ConstView y, GradView dx);
void sigmoid_backward(CudaStream&, ConstView dy, ConstView y, GradView dx);

// Dropout (Srivastava et al., JMLR 2014), inverted: y = x / (1 - p) where kept, else 0; an element is kept
// with probability 1 - p. x is [N, …] and sample_ids i32 [N]: element e of the sample with id s is dropped
// where to_uniform(random.words(s, e / 4)[e % 4]) < p, whatever batch, rank or device it is in. The same call
// with dy is the backward.
void dropout(CpuStream&, ConstView x, ConstView sample_ids, double p, Random random, GradView y);
void dropout(CudaStream&, ConstView x, ConstView sample_ids, double p, Random random, GradView y);

}  // namespace convoy
