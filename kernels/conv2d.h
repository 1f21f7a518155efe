// Two-dimensional convolution (cross-correlation, as everywhere in the field). x [N, H, W, I], filter
// [O, kH, kW, I], bias [O], y [N, oH, oW, O] with oH = (H + 2 padding - kH) / stride + 1, rounded down.
// CPU: oneDNN or, where it pays, Winograd's algorithm, in f32 and bf16; plain loops in f64, the oracle. CUDA:
// cuDNN in f32, f16 and bf16, plain loops in f64 and where the build has no cuDNN. Half types sum in f32. f32
// stays f32 unless CudaOptions::tf32 says otherwise.
#pragma once

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct Conv2dOptions {
  int stride = 1;     // both axes
  int padding = 0;    // zeros on all four sides
  bool relu = false;  // forward: y = max(., 0) of the sum with its bias. The gradients take no notice: theirs
                      // is the dy in front of the ReLU
};

// bias.data may be null. NaN passes through the ReLU, except that cuDNN does not say what its own makes of
// it.
void conv2d_forward(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions options);
void conv2d_forward(CudaStream&, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options);

// dx = the transposed convolution of dy with the filter.
void conv2d_backward_data(CpuStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options);
void conv2d_backward_data(CudaStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options);

// dfilter = correlation of x with dy. (The gradient of the bias is sum_rows of dy.)
void conv2d_backward_filter(CpuStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options);
void conv2d_backward_filter(CudaStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options);

// The same three as plain loops, on the CPU in f32 and f64: what the fast paths are compared with. Each sum
// has an order that the shapes alone fix.
void conv2d_forward_reference(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y,
                              Conv2dOptions options);
void conv2d_forward_reference(CudaStream&, ConstView x, ConstView filter, ConstView bias, View y,
                              Conv2dOptions options);
void conv2d_backward_data_reference(CpuStream&, ConstView dy, ConstView filter, GradView dx,
                                    Conv2dOptions options);
void conv2d_backward_data_reference(CudaStream&, ConstView dy, ConstView filter, GradView dx,
                                    Conv2dOptions options);
void conv2d_backward_filter_reference(CpuStream&, ConstView dy, ConstView x, GradView dfilter,
                                      Conv2dOptions options);
void conv2d_backward_filter_reference(CudaStream&, ConstView dy, ConstView x, GradView dfilter,
                                      Conv2dOptions options);

}  // namespace convoy
