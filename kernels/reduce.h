// Reductions. The order of every sum depends only on the shape, so results are bitwise reproducible with any
// number of threads. Sums of f32, f16 and bf16 are accumulated in f64 and rounded once. The CPU supports f32,
// f64 and bf16, and a GPU also f16.
#pragma once

#include <span>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// y [1] = a times the sum of all elements of x; 0 for an empty x.
void sum(CpuStream&, ConstView x, GradView y, double a = 1);
void sum(CudaStream&, ConstView x, GradView y, double a = 1);

// y [C] = sum of the rows of x, which is viewed as [rows, C] with C its last size. This is the gradient of a
// bias.
void sum_rows(CpuStream&, ConstView x, GradView y);
void sum_rows(CudaStream&, ConstView x, GradView y);

// g = 0 where y <= 0, else dy, as by UnaryOp::relu; db [C] = sum of the rows of g. The sum of many rows has
// another order than sum_rows(). These are the gradients in front of a ReLU and of the bias there. g may
// alias dy.
void relu_bias_backward(CpuStream&, ConstView dy, ConstView y, View g, GradView db);
void relu_bias_backward(CudaStream&, ConstView dy, ConstView y, View g, GradView db);

// y [rows, C] = x [rows, C] + bias [C], or max(x + bias, 0) with `relu`. y may alias x.
void add_bias(CpuStream&, ConstView x, ConstView bias, View y, bool relu = false);
void add_bias(CudaStream&, ConstView x, ConstView bias, View y, bool relu = false);

// norm (f64 [1]) = Euclidean norm of the elements of all tensors. NaN or infinity if any element is NaN or
// infinite.
void global_norm(CpuStream&, std::span<const ConstView> tensors, View norm);
void global_norm(CudaStream&, std::span<const ConstView> tensors, View norm);

// count (i32 [1]) = number of elements of all tensors that are NaN or infinite, at most 2^31 - 1. Detects an
// overflow before an optimizer step. Supports f64, f32, f16 and bf16 on both devices.
void count_non_finite(CpuStream&, std::span<const ConstView> tensors, View count);
void count_non_finite(CudaStream&, std::span<const ConstView> tensors, View count);

// value (i32 [2]) = the value of Checksum (base/checksum.h) for the bytes of x, low word first; any element
// type. On a GPU, x and value begin at multiples of 8 bytes.
void checksum(CpuStream&, ConstView x, View value);
void checksum(CudaStream&, ConstView x, View value);

// Reductions over some axes. The order of every sum depends only on the shapes, so results are bitwise
// reproducible with any number of threads. Sums are accumulated in f64 and rounded once. The types are f32,
// f64, bf16 and, on a GPU, f16.

// y = a times the sum of x over the axes along which y has size 1. x and y have the same number of axes, and
// the same size along all others.
void sum_axes(CpuStream&, ConstView x, double a, GradView y);
void sum_axes(CudaStream&, ConstView x, double a, GradView y);

// y [outer, inner] = maximum of x [outer, n, inner] over n, and indices (i32, the shape of y) = its first
// position. NaN is larger than any number. n is positive.
void max_axis(CpuStream&, ConstView x, View y, View indices);
void max_axis(CudaStream&, ConstView x, View y, View indices);

// dx [outer, n, inner] = dy [outer, inner] at the position in `indices`, and 0 elsewhere.
void max_axis_backward(CpuStream&, ConstView dy, ConstView indices, GradView dx);
void max_axis_backward(CudaStream&, ConstView dy, ConstView indices, GradView dx);

}  // namespace convoy::kernels
