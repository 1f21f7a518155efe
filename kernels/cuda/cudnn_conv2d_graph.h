// One convolution, and its description for cuDNN.
#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/conv2d_geometry.h"
#include "kernels/cuda/cudnn_plan.h"
#include "kernels/runtime/dtype.h"

namespace convoy {

enum class Conv2dDirection : std::uint8_t { forward, backward_data, backward_filter };

/// All that a plan depends on.
struct Conv2dProblem {
  Conv2dDirection direction;
  DType dtype;  // f32, f16 or bf16
  ConvSizes sizes;
  bool bias = false;  // forward alone
  bool relu = false;  // forward alone
  int alignment = 0;  // bytes that all arrays' addresses are multiples of: a power of two, 16 at most

  bool has_epilogue() const { return bias || relu; }
  /// The sum alone.
  Conv2dProblem without_epilogue() const;
  /// "conv2d forward bf16 n128 32x32x64 k64 3x3 s1 p1 bias relu": images, their rows, columns and channels,
  /// filters. Alignment only where it is less than kCudnnAlignment.
  std::string text() const;
  friend auto operator<=>(const Conv2dProblem&, const Conv2dProblem&) = default;
};

/// What engines want of an address, at most: they load 16 bytes at a time.
inline constexpr int kCudnnAlignment = 16;

/// Arrays of one call; in backward, x or filter stand for their gradients and y for dy. bias may be null.
struct Conv2dArrays {
  void* x;
  void* filter;
  void* bias;
  void* y;
};

/// The convolution, or convolution -> + bias -> ReLU with what lies between them
/// in f32 and never in memory. Sums are f32. Sizes are told in cuDNN's order (N, C, H, W; O, I, kH, kW), and
/// strides say that channels are next to each other in memory.
std::shared_ptr<const CudnnGraph> make_conv2d_graph(const CudnnTarget& target, const Conv2dProblem& problem);

/// The ids of the graph's arrays, and in the same order which array of a call is which.
std::vector<std::int64_t> conv2d_ids(const Conv2dProblem& problem);
std::vector<void*> conv2d_pointers(const Conv2dProblem& problem, const Conv2dArrays& arrays);

}  // namespace convoy
