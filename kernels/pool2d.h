// Pooling of [N, H, W, C] to [N, oH, oW, C]; oH = (H + 2 padding - kernel) / stride + 1, rounded down. f32
// and f64; bf16 and, on CUDA, f16 are computed in f32 and rounded once.
#pragma once

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct Pool2dOptions {
  int kernel = 2;
  int stride = 2;
  int padding = 0;  // at most kernel / 2; padding never wins a maximum and counts as zeros in an average
};

// positions (i32, the shape of y): h W + w of each maximum, the first in row order of equals; NaN wins.
void max_pool2d_forward(CpuStream&, ConstView x, View y, View positions, Pool2dOptions options);
void max_pool2d_forward(CudaStream&, ConstView x, View y, View positions, Pool2dOptions options);
void max_pool2d_backward(CpuStream&, ConstView dy, ConstView positions, GradView dx, Pool2dOptions options);
void max_pool2d_backward(CudaStream&, ConstView dy, ConstView positions, GradView dx, Pool2dOptions options);

// The divisor is kernel^2 everywhere (PyTorch's count_include_pad).
void avg_pool2d_forward(CpuStream&, ConstView x, View y, Pool2dOptions options);
void avg_pool2d_forward(CudaStream&, ConstView x, View y, Pool2dOptions options);
void avg_pool2d_backward(CpuStream&, ConstView dy, GradView dx, Pool2dOptions options);
void avg_pool2d_backward(CudaStream&, ConstView dy, GradView dx, Pool2dOptions options);

// y [N, C] = mean over H and W.
void global_avg_pool2d_forward(CpuStream&, ConstView x, View y);
void global_avg_pool2d_forward(CudaStream&, ConstView x, View y);
void global_avg_pool2d_backward(CpuStream&, ConstView dy, GradView dx);
void global_avg_pool2d_backward(CudaStream&, ConstView dy, GradView dx);

// [N, H, W, C] -> [N, C, H, W] and back: what Flatten emits (PyTorch's order), and its gradient. They serve
// filters too, [O, kH, kW, I] <-> [O, I, kH, kW]: O stands where N does.
void nhwc_to_nchw(CpuStream&, ConstView x, GradView y);
void nhwc_to_nchw(CudaStream&, ConstView x, GradView y);
void nchw_to_nhwc(CpuStream&, ConstView x, GradView y);
void nchw_to_nhwc(CudaStream&, ConstView x, GradView y);

}  // namespace convoy
