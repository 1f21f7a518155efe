// Reductions. The order of every sum is fixed by the shape alone, so results repeat bit for bit, on any
// number of threads. Sums of f32 and of half types are carried in f64 and rounded once. The CPU computes in
// f32, f64 and bf16, a GPU in f16 too.
#pragma once

#include <span>

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

// y [1] = sum of all elements of x; 0 for an empty x.
void sum(CpuStream&, ConstView x, GradView y);
void sum(CudaStream&, ConstView x, GradView y);

// y [C] = sum over the rows of x, seen as [rows, C] with C its last size: the gradient of a bias.
void sum_rows(CpuStream&, ConstView x, GradView y);
void sum_rows(CudaStream&, ConstView x, GradView y);

// y [rows, C] = x [rows, C] + bias [C], or max(x + bias, 0). y may alias x.
void add_bias(CpuStream&, ConstView x, ConstView bias, View y, bool relu = false);
void add_bias(CudaStream&, ConstView x, ConstView bias, View y, bool relu = false);

// y (any shape) = value of the one-element x times a: the gradient of sum.
void broadcast_scalar(CpuStream&, ConstView x, double a, GradView y);
void broadcast_scalar(CudaStream&, ConstView x, double a, GradView y);

// norm [1] (f64) = Euclidean norm of all tensors together; NaN or infinity where any element is.
void global_norm(CpuStream&, std::span<const ConstView> tensors, View norm);
void global_norm(CudaStream&, std::span<const ConstView> tensors, View norm);

// count [1] (i32) = how many elements of all tensors together are NaN or infinite, 2^31 - 1 where there are
// more: finds an overflow before an update. f64, f32, f16 and bf16 on both devices.
void count_non_finite(CpuStream&, std::span<const ConstView> tensors, View count);
void count_non_finite(CudaStream&, std::span<const ConstView> tensors, View count);

// indices (i32 [N]) = position of the largest of each row of x [N, C]; the first of equals. A
// NaN is the largest where it comes first, and passed over elsewhere.
void argmax(CpuStream&, ConstView x, View indices);
void argmax(CudaStream&, ConstView x, View indices);

}  // namespace convoy
