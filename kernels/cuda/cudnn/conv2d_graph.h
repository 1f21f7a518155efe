// A convolution problem, and its description as a cuDNN operation graph.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/cuda/cudnn/operations.h"
#include "convoy/kernels/cuda/cudnn/plan.h"

namespace convoy::kernels {

/// Everything that a plan for a convolution depends on.
struct Conv2dProblem {
  Conv2dDirection direction;
  DType dtype;  // f32, f16 or bf16
  ConvSizes sizes;
  bool bias = false;                    // forward only
  bool relu = false;                    // forward only
  GradMode mode = GradMode::overwrite;  // forward: overwrite
  int alignment = 0;                    // alignment of all arrays in bytes: a power of two, at most 16

  bool has_epilogue() const { return bias || relu; }
  /// Returns the size of the array that the convolution computes, in bytes.
  std::size_t result_bytes() const;
  /// Returns the problem without bias and ReLU.
  Conv2dProblem without_epilogue() const;
  /// Returns the problem as text, such as "conv2d forward bf16 n128 32x32x64 k64 3x3 s1 p1 bias relu": the
  /// number of images, their rows, columns and channels, the filters, stride and padding. Includes the number
  /// of groups ("g32") if there are several, "accumulate" for that mode, and the alignment if it is less than
  /// kCudnnAlignment.
  std::string text() const;
  friend auto operator<=>(const Conv2dProblem&, const Conv2dProblem&) = default;
};

/// The maximum alignment in bytes that engines make use of: they load 16 bytes at a time.
inline constexpr int kCudnnAlignment = 16;

/// The arrays of one call. In the backward directions, x or filter point to the respective gradient and y
/// points to dy. bias may be null.
struct Conv2dArrays {
  void* x;
  void* filter;
  void* bias;
  void* y;
};

/// Returns the finalized graph of the convolution, or of convolution -> + bias -> ReLU. Intermediate results
/// are f32 and never in memory. Sums are f32, also with GradMode::accumulate, and are rounded once. Sizes are
/// in cuDNN's order (N, C, H, W; O, I, kH, kW); the strides describe the channels-last layout. Throws
/// DeviceError if cuDNN rejects the graph.
std::shared_ptr<const CudnnGraph> make_conv2d_graph(const CudnnTarget& target, const Conv2dProblem& problem);

/// Returns the ids of the graph's tensors.
std::vector<std::int64_t> conv2d_ids(const Conv2dProblem& problem);
/// Returns the arrays of a call, in the order of conv2d_ids().
std::vector<void*> conv2d_pointers(const Conv2dProblem& problem, const Conv2dArrays& arrays);

}  // namespace convoy::kernels
