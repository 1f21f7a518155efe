// Rows chosen by indices, and sums at the places that indices choose. Indices are i32. Reading
// accepts every element type. Sums are f32, f64, bf16 and, on a GPU, f16; the CPU adds in f64, a GPU in f32,
// or in f64 for f64, and both round once.
//
// Valid indices are 0 to V - 1. The caller checks them where it can. For any other index, a read on a GPU
// gives NaN (0 in an integer type), and a sum omits the term; on the CPU the behavior is undefined.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// y[o, k, d] = x[o, indices[k], d] for x [O, V, D], indices [K] and y [O, K, D]
void index_select_forward(CpuStream&, ConstView x, ConstView indices, View y);
void index_select_forward(CudaStream&, ConstView x, ConstView indices, View y);

// dx[o, v, d] = sum of dy[o, k, d] over all k with indices[k] = v, 0 if there is none. The order of the terms
// is that of k; a GPU also adds what each addition loses.
void index_select_backward(CpuStream&, ConstView dy, ConstView indices, GradView dx);
void index_select_backward(CudaStream&, ConstView dy, ConstView indices, GradView dx);

}  // namespace convoy::kernels
