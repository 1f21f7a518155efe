// Two-dimensional pooling of [N, H, W, C] to [N, oH, oW, C], with oH = (H + 2 padding - kernel) / stride + 1,
// rounded down or, with ceil_mode, up. The types are f32, f64, bf16 and, on a GPU, f16. f16 and bf16 are computed in f32 and rounded
// once.
#pragma once

#include "convoy/kernels/base/size2d.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// Options of pooling. A number is for both axes, {2, 1} for the rows and for the columns.
struct Pool2dOptions {
  Size2d kernel = 2;   // size of the windows
  Size2d stride = 2;   // distance of neighboring windows
  Size2d padding = 0;  // pixels in front of and behind each axis, at most kernel / 2; never a maximum
  /// Whether the number of windows is rounded up. The last one may then extend past the padding, but begins in
  /// the image or in the padding in front of it.
  bool ceil_mode = false;
  bool count_include_pad = true;  // whether averages count the padding as zeros; otherwise they ignore it
};

}  // namespace convoy

namespace convoy::kernels {

// With kernel 0, pooling is adaptive: window i of oH covers the rows from floor(i H / oH) to
// ceil((i + 1) H / oH) - 1, and columns alike. The other options do not matter then.

/// Returns the type of max pooling's taps: the smallest of u8 and i32 that holds the pixels of a window. Those
/// of adaptive pooling are i32.
inline DType type_of_taps(Pool2dOptions options) {
  const std::int64_t area = std::int64_t{options.kernel.height} * options.kernel.width;
  return area > 0 && area <= 256 ? DType::u8 : DType::i32;
}

// Max pooling. taps (the shape of y, of the type type_of_taps()) receives where in its window each maximum
// is, as ky kW + kx, with kW the width of the windows (PoolAxis::kernel()): the first in row order of equal
// values. NaN is greater than any number.
void max_pool2d_forward(CpuStream&, ConstView x, View y, View taps, Pool2dOptions options);
void max_pool2d_forward(CudaStream&, ConstView x, View y, View taps, Pool2dOptions options);
void max_pool2d_backward(CpuStream&, ConstView dy, ConstView taps, GradView dx, Pool2dOptions options);
void max_pool2d_backward(CudaStream&, ConstView dy, ConstView taps, GradView dx, Pool2dOptions options);

// Average pooling. The divisor is the number of pixels of the window inside the image or, with
// count_include_pad, inside the padded image.
void avg_pool2d_forward(CpuStream&, ConstView x, View y, Pool2dOptions options);
void avg_pool2d_forward(CudaStream&, ConstView x, View y, Pool2dOptions options);
void avg_pool2d_backward(CpuStream&, ConstView dy, GradView dx, Pool2dOptions options);
void avg_pool2d_backward(CudaStream&, ConstView dy, GradView dx, Pool2dOptions options);

// Global average pooling: y [N, C] = mean of x over H and W.
void global_avg_pool2d_forward(CpuStream&, ConstView x, View y);
void global_avg_pool2d_forward(CudaStream&, ConstView x, View y);
void global_avg_pool2d_backward(CpuStream&, ConstView dy, GradView dx);
void global_avg_pool2d_backward(CudaStream&, ConstView dy, GradView dx);

}  // namespace convoy::kernels
