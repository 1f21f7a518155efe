// Two-dimensional convolution (cross-correlation, as usual in deep learning). The shapes are
// x [N, H, W, I], filter [O, kH, kW, I / G], bias [O] and y [N, oH, oW, O], with
// oH = (H + 2 padding - dilation (kH - 1) - 1) / stride + 1, rounded down, and oW alike. G is the number of
// groups: the first O / G filters see the first I / G channels, and so on; with G = I, the convolution is
// depthwise. CPU: f32 and bf16 use
// oneDNN, or algorithms of kernels/cpu/ where they are faster; f64 uses plain loops. CUDA: f32, f16 and bf16
// use cuDNN; f64, what cuDNN cannot run, and all types in a build without cuDNN, use plain loops. f16 and
// bf16 accumulate in f32. f32 does not use TF32 unless CudaOptions::tf32 is set.
#pragma once

#include <limits>

#include "convoy/kernels/base/size2d.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// The pixels around an image.
enum class PaddingMode : std::uint8_t {
  zeros,      // 0
  reflect,    // the image mirrored at its outermost pixels, which are not repeated
  replicate,  // the nearest pixel of the image
  circular,   // the other end of the image
};

/// The padding with which a convolution of stride 1 has a result of the size of its input: dilation
/// (kernel - 1) pixels, one more behind the image than in front of it if their number is odd.
inline constexpr Size2d kSamePadding = std::numeric_limits<int>::min();

/// Options of a convolution. A number is for both axes, {2, 1} for the rows and for the columns.
struct Conv2dOptions {
  Size2d stride = 1;    // distance of neighboring windows
  Size2d padding = 0;   // pixels in front of and behind each axis, or kSamePadding
  Size2d dilation = 1;  // distance of the pixels that neighboring values of the filter are multiplied with
  int groups = 1;       // of channels; must divide the numbers of input and of output channels
  /// The forward pass applies a ReLU to the sum with the bias. The backward functions ignore this option:
  /// they expect dy with respect to the input of the ReLU.
  bool relu = false;
  PaddingMode padding_mode = PaddingMode::zeros;  // what the padding contains
};

}  // namespace convoy

namespace convoy::kernels {

// The functions below pad with zeros. The op conv2d() computes kSamePadding, and pads in the other modes.

// Computes y = x * filter + bias, and its ReLU if options.relu. bias.data may be null. NaN passes through the
// ReLU, except that cuDNN does not document what its fused ReLU does with NaN.
void conv2d_forward(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions options);
void conv2d_forward(CudaStream&, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options);

/// Does the same for windows of at most 16 values. Returns false and does nothing for larger windows, over
/// 256 outputs, groups, dilation, f64, and arrays not aligned for packs of channels. conv2d_forward() tries it.
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
