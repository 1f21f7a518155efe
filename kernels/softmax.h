// Softmax and log-softmax of the rows of x [rows, C], with the largest element of each row subtracted first,
// so that exp cannot overflow. The types are f32, f64, bf16 and, on a GPU, f16.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// y[c] = exp(x[c]) / sum over k of exp(x[k])
void softmax(CpuStream&, ConstView x, View y);
void softmax(CudaStream&, ConstView x, View y);
// dx[c] = y[c] (dy[c] - sum over k of dy[k] y[k])
void softmax_backward(CpuStream&, ConstView dy, ConstView y, GradView dx);
void softmax_backward(CudaStream&, ConstView dy, ConstView y, GradView dx);

// y[c] = x[c] - log(sum over k of exp(x[k]))
void log_softmax(CpuStream&, ConstView x, View y);
void log_softmax(CudaStream&, ConstView x, View y);
// dx[c] = dy[c] - exp(y[c]) (sum over k of dy[k])
void log_softmax_backward(CpuStream&, ConstView dy, ConstView y, GradView dx);
void log_softmax_backward(CudaStream&, ConstView dy, ConstView y, GradView dx);

}  // namespace convoy::kernels
