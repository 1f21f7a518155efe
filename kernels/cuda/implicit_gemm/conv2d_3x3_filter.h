// The gradient of the filters of a convolution with 3x3 filters, stride 1 and padding 1 by the tensor cores,
// in f16 and bf16. Sums are f32. The work of each thread and the order of every sum depend only on the shapes
// and on the number of ranges.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::implicit_gemm {

/// Returns whether backward_filter() computes the gradient of the filters of this convolution: f16 or bf16,
/// 3x3, stride 1, padding 1, one group, images of 1 to kMaxWidth (conv2d_3x3.h) columns, a number of input
/// channels that is a multiple of 16 (those that are no multiple of 32 waste time), and one of output
/// channels that is a multiple of 64.
bool supports_backward_filter(DType dtype, const ConvSizes& sizes);

/// Returns the number of ranges in which the pixels of this convolution are to be summed. It makes a model's
/// time for an H100 minimal: more ranges occupy more of its 132 multiprocessors, but each range has a partial
/// result in memory.
int filter_ranges(const ConvSizes& sizes);

/// Enqueues dfilter[o, ky, kx, i] = the sum over pixels p of dy[p, o] x[p + (ky - 1, kx - 1), i], where x is
/// zero outside its image (kernels/conv2d.h has the shapes), or adds it to dfilter in f32. Each element is
/// rounded once. `ranges` is at least 1; with more than one, dfilter.numel() * ranges f32 numbers of scratch
/// memory are used. Requires supports_backward_filter(), and addresses that are multiples of 16.
void backward_filter(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter, int ranges);

}  // namespace convoy::kernels::implicit_gemm
