// The algorithms for convolutions on a GPU, as rows of convoy-bench-kernels.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/kernels/kernel_rows.h"

namespace convoy::bench {

/// Returns rows that compute the 3x3 convolutions with stride 1 of ResNet-18 on images of 32x32 pixels, in
/// bf16: forward and the gradients of the input and the filters, by kernels/conv2d.h, and those that
/// kernels/cuda/implicit_gemm computes by these. Their names are as
/// "conv2d_3x3/32x32x64/forward/implicit_gemm". They run on GPUs only. `batch` is the number of images.
/// `has_wgmma` says whether the GPU has the instruction of forward/implicit_gemm, which is left out
/// otherwise.
std::vector<KernelRow> convolution_rows(std::int64_t batch, bool has_wgmma);

}  // namespace convoy::bench
