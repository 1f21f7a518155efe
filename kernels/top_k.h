// The positions of the largest elements.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// Computes positions (i32 [K]), in ascending order, of the K largest elements of x [N]. NaN is larger than
// any number. Of equal elements, the first ones are chosen. N is less than 2^31, and K at most N. x is f32,
// f64, bf16 or, on a GPU, f16. A GPU compares all pairs of elements, which is fast for the samples of a
// batch.
void top_k(CpuStream&, ConstView x, View positions);
void top_k(CudaStream&, ConstView x, View positions);

}  // namespace convoy::kernels
