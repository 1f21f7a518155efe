// Two-dimensional convolution (cross-correlation, as usual in deep learning). The shapes are
// x [N, H, W, I], filter [O, kH, kW, I / G], bias [O] and y [N, oH, oW, O], with
// oH = (H + 2 padding - kH) / stride + 1, rounded down. G is the number of groups: the first O / G filters
// see the first I / G channels, and so on; with G = I, the convolution is depthwise. CPU: f32 and bf16 use
// oneDNN, or algorithms of kernels/cpu/ where they are faster; f64 uses plain loops. CUDA: f32, f16 and bf16
// use cuDNN; f64, what cuDNN cannot run, and all types in a build without cuDNN, use plain loops. f16 and
// bf16 accumulate in f32. f32 does not use TF32 unless CudaOptions::tf32 is set.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// Options of a convolution.
struct Conv2dOptions {
  int stride = 1;   // on both axes
  int padding = 0;  // zeros on all four sides
  int groups = 1;   // of channels; must divide the numbers of input and of output channels
  /// The forward pass applies a ReLU to the sum with the bias. The backward functions ignore this option:
  /// they expect dy with respect to the input of the ReLU.
  bool relu = false;
};

}  // namespace convoy

namespace convoy::kernels {

// Computes y = x * filter + bias, and its ReLU if options.relu. bias.data may be null. NaN passes through the
// ReLU, except that cuDNN does not document what its fused ReLU does with NaN.
void conv2d_forward(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions options);
void conv2d_forward(CudaStream&, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options);

/// Does the same for windows of at most 16 values. Returns false and does nothing for larger windows, over
/// 256 outputs, groups, f64, and arrays not aligned for packs of channels. conv2d_forward() tries it.
bool conv2d_forward_direct(CudaStream&, ConstView x, ConstView filter, ConstView bias, View y,
                           Conv2dOptions options);

// Computes dx, the transposed convolution of dy with the filter.
void conv2d_backward_data(CpuStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options);
void conv2d_backward_data(CudaStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options);

// Computes dfilter, the correlation of x with dy. The gradient of the bias is sum_rows of dy.
void conv2d_backward_filter(CpuStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options);
void conv2d_backward_filter(CudaStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options);

// The same three functions as plain loops, which are the reference for the fast paths. The CPU versions
// compute in f32 and f64. The order of every sum depends only on the shapes.
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

}  // namespace convoy::kernels
