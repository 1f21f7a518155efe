// The convolutions of kernels/cuda/implicit_gemm, as a candidate next to cuDNN's plans.
#pragma once

#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels::implicit_gemm {

/// Returns whether a kernel of kernels/cuda/implicit_gemm computes the problem on the GPU of the stream:
/// never with a bias or a ReLU, the gradient of the input, or arrays that are not aligned to kCudnnAlignment.
bool supports(const CudaStream& stream, const Conv2dProblem& problem);

/// Enqueues the convolution. Requires supports(). Throws DeviceError if there is no memory for the partial
/// results of the gradient of the filters.
void enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays);

}  // namespace convoy::kernels::implicit_gemm
