// Copies between arrays that are read and written in any order of their elements: the kernel behind permute,
// slice, concat, pad, broadcast_to and their gradients.
#pragma once

#include "convoy/kernels/base/loop_nest.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// y[at y_strides] = x[at x_strides], or +=, for each element of the index space `space`. The strides must not
// write an element of y twice. Elements of y outside of them keep their values. x and y have one type, f32,
// f64, bf16 or, on a GPU, f16.
void strided_copy(CpuStream&, const Shape& space, ConstView x, const Strides& x_strides, GradView y,
                  const Strides& y_strides);
void strided_copy(CudaStream&, const Shape& space, ConstView x, const Strides& x_strides, GradView y,
                  const Strides& y_strides);

}  // namespace convoy::kernels
