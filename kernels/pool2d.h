// Two-dimensional pooling of [N, H, W, C] to [N, oH, oW, C], with oH = (H + 2 padding - kernel) / stride + 1,
// rounded down. The types are f32, f64, bf16 and, on a GPU, f16. f16 and bf16 are computed in f32 and rounded
// once.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// Options of pooling.
struct Pool2dOptions {
  int kernel = 2;   // side of the square window
  int stride = 2;   // on both axes
  int padding = 0;  // at most kernel / 2; ignored by max pooling and counted as zeros by average pooling
};

}  // namespace convoy

namespace convoy::kernels {

/// Returns the type of max pooling's taps: the smallest of u8 and i32 that holds the pixels of a window.
inline DType type_of_taps(Pool2dOptions options) { return options.kernel <= 16 ? DType::u8 : DType::i32; }

// Max pooling. taps (the shape of y, of the type type_of_taps()) receives where in its window each maximum
// is, as ky kernel + kx: the first in row order of equal values. NaN is greater than any number.
void max_pool2d_forward(CpuStream&, ConstView x, View y, View taps, Pool2dOptions options);
void max_pool2d_forward(CudaStream&, ConstView x, View y, View taps, Pool2dOptions options);
void max_pool2d_backward(CpuStream&, ConstView dy, ConstView taps, GradView dx, Pool2dOptions options);
void max_pool2d_backward(CudaStream&, ConstView dy, ConstView taps, GradView dx, Pool2dOptions options);

// Average pooling. The divisor is always kernel^2, as in PyTorch with count_include_pad.
void avg_pool2d_forward(CpuStream&, ConstView x, View y, Pool2dOptions options);
void avg_pool2d_forward(CudaStream&, ConstView x, View y, Pool2dOptions options);
void avg_pool2d_backward(CpuStream&, ConstView dy, GradView dx, Pool2dOptions options);
void avg_pool2d_backward(CudaStream&, ConstView dy, GradView dx, Pool2dOptions options);

// Global average pooling: y [N, C] = mean of x over H and W.
void global_avg_pool2d_forward(CpuStream&, ConstView x, View y);
void global_avg_pool2d_forward(CudaStream&, ConstView x, View y);
void global_avg_pool2d_backward(CpuStream&, ConstView dy, GradView dx);
void global_avg_pool2d_backward(CudaStream&, ConstView dy, GradView dx);

// Permute [N, H, W, C] to [N, C, H, W] and back. Flatten uses them to produce features in PyTorch's order,
// and for its gradient. They also permute filters, [O, kH, kW, I] to [O, I, kH, kW] and back, with O in the
// place of N.
void nhwc_to_nchw(CpuStream&, ConstView x, GradView y);
void nhwc_to_nchw(CudaStream&, ConstView x, GradView y);
void nchw_to_nhwc(CpuStream&, ConstView x, GradView y);
void nchw_to_nhwc(CudaStream&, ConstView x, GradView y);

}  // namespace convoy::kernels
