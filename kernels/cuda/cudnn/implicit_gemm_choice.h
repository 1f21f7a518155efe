// The convolutions of kernels/cuda/implicit_gemm, as candidates next to cuDNN's plans.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"
#include "convoy/kernels/cuda/implicit_gemm/conv2d_3x3.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels {

/// A convolution of kernels/cuda/implicit_gemm, with the settings that its time depends on.
struct ImplicitGemm {
  implicit_gemm::Variant variant;  // of forward and backward_data
  int ranges = 0;                  // of backward_filter; 0: another direction

  /// Returns all that compute the problem on the GPU of the stream, first the one to be used without timing:
  /// none for bias or ReLU, and for arrays that are not aligned to kCudnnAlignment. The problem may have fewer
  /// input channels than the kernels, except for the gradient of the input and for an added gradient of the filters.
  static std::vector<ImplicitGemm> all_for(const CudaStream& stream, const Conv2dProblem& problem);
  /// Returns the first of them, or nullopt if there is none.
  static std::optional<ImplicitGemm> default_for(const CudaStream& stream, const Conv2dProblem& problem);
  /// Returns the one whose to_text() is `text`, or nullopt if there is none.
  static std::optional<ImplicitGemm> from_text(const CudaStream& stream, const Conv2dProblem& problem,
                                               std::string_view text);
  /// Returns the settings as text, such as "implicit_gemm 256 wgmma" (the number of pixels of a block and the
  /// instruction, if it is not mma.sync) or "implicit_gemm ranges 12".
  std::string to_text() const;

  /// Enqueues the convolution. Throws DeviceError if there is no memory for the partial results of ranges, or for
  /// copies of x and the filters with more channels, which it makes if they have less than 16.
  void enqueue(CudaStream& stream, const Conv2dProblem& problem, const Conv2dArrays& arrays) const;
};

}  // namespace convoy::kernels
