// Reductions over some axes. The order of every sum depends only on the shapes, so results are bitwise
// reproducible with any number of threads. Sums are accumulated in f64 and rounded once. The types are f32,
// f64, bf16 and, on a GPU, f16.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

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
