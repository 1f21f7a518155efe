// Convolution with 3x3 filters, stride 1 and padding 1 by the tensor cores of Hopper, in f16 and bf16. Sums
// are f32. The work of each thread and the order of every sum depend only on the shapes.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::implicit_gemm {

/// Returns whether forward() computes this convolution: f16 or bf16, 3x3, stride 1, padding 1, one group,
/// images of at most kMaxWidth columns, a number of input channels that is a multiple of 16, and one of
/// output channels that is a multiple of 64.
bool supports_forward(DType dtype, const ConvSizes& sizes);

/// The number of floating-point operations of a convolution from which on a stream times these kernels:
/// stream.local<MinimumFlops>().
struct MinimumFlops {
  explicit MinimumFlops(CudaStream& /*stream*/) {}
  /// A convolution with fewer takes little longer than a launch, by any algorithm.
  double value = 2.5e8;
};

inline constexpr int kMaxWidth = 107;  // two slabs of pixels and three of filters fit into 48 KiB

/// Returns whether the GPU of a stream has wgmma, which forward() needs: its compute capability is 9.0.
bool has_wgmma(const CudaStream& stream);

/// Enqueues y = x * filter (kernels/conv2d.h has the shapes). Each element is rounded once. Requires
/// supports_forward(), addresses that are multiples of 16, and has_wgmma(); without it, the kernel ends with
/// an error.
void forward(CudaStream& stream, ConstView x, ConstView filter, View y);

}  // namespace convoy::kernels::implicit_gemm
