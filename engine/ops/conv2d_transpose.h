// Transposed convolution. For threads and the meta device, see ops.h.
#pragma once

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Options of a transposed convolution. stride and padding are those of the convolution that it transposes.
struct ConvTranspose2dOptions {
  int stride = 1;   // on both axes
  int padding = 0;  // removes this many pixels from all four sides of the result
  /// Adds rows at the bottom and columns at the right of the result, less than `stride`: selects one of the
  /// `stride` sizes from which the convolution makes the size of x.
  int output_padding = 0;
  int groups = 1;  // of channels; must divide the number of channels of x
};

/// Computes the transposed convolution of x [N, H, W, I] with filter [I, kH, kW, O / groups], and adds
/// bias, [O] or undefined. It is the gradient, for its input, of a convolution of [N, oH, oW, O] to
/// [N, H, W, I] with the same filter, which is OHWI for that convolution. The result is [N, oH, oW, O] with
/// oH = (H - 1) stride - 2 padding + kH + output_padding, and oW alike (Dumoulin and Visin, "A guide to
/// convolution arithmetic for deep learning", arXiv:1603.07285, section 4). In f16 and bf16 the sum is
/// rounded before the bias is added. Throws UsageError if oH or oW is not positive.
Variable conv2d_transpose(const Variable& x, const Variable& filter, const Variable& bias,
                          ConvTranspose2dOptions options = {});

}  // namespace convoy
