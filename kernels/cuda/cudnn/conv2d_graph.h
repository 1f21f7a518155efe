// A convolution problem, and its description as a cuDNN operation graph.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/cudnn/descriptor.h"
#include "convoy/kernels/cuda/cudnn/plan.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels {

enum class Conv2dDirection : std::uint8_t { forward, backward_data, backward_filter };

/// Sizes in cuDNN's order: outermost, channels, rows, columns.
using Dims = std::array<std::int64_t, 4>;

/// Whether a tensor is an array, or virtual: a value between two operations that is never in memory.
enum class InMemory : bool { no, yes };

/// Returns cuDNN's type of f32, f16 or bf16. Throws UsageError for any other type.
cudnnDataType_t cudnn_type(DType dtype);

/// Returns the descriptor of a channels-last array of sizes `dims`. `id` is its unique id in the graph, and
/// `alignment` that of its address in bytes.
CudnnDescriptor tensor(std::int64_t id, const Dims& dims, cudnnDataType_t type, int alignment,
                       InMemory in_memory = InMemory::yes);

/// Returns the strides, paddings and dilations of a convolution, which sums in f32.
CudnnDescriptor convolution(const ConvSizes& sizes);

/// Returns the operation of one direction. The tensor that it writes is y in forward, x in backward_data, and
/// filter in backward_filter; y and x are dy and dx in the backward directions. The result is added to the
/// tensor (accumulate), or overwrites it.
CudnnDescriptor convolve(Conv2dDirection direction, const CudnnDescriptor& convolution,
                         const CudnnDescriptor& x, const CudnnDescriptor& filter, const CudnnDescriptor& y,
                         GradMode mode = GradMode::overwrite);

/// Returns the mode of a pointwise operation, which computes in f32.
CudnnDescriptor pointwise_mode(cudnnPointwiseMode_t mode);

/// Returns the operation y = mode(x), or y = mode(x, b) if b is not null.
CudnnDescriptor pointwise(const CudnnDescriptor& mode, const CudnnDescriptor& x, const CudnnDescriptor* b,
                          const CudnnDescriptor& y);

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
  /// Returns the problem as text, such as "conv2d forward bf16 n128 32x32x64 k64 3x3 s1 p1 bias relu": the
  /// number of images, their rows, columns and channels, the filters, stride and padding, which are "s2x1" if
  /// the axes differ. Includes the dilation ("d2") unless it is 1, the number of groups ("g32") if there are several, "accumulate" for that mode, and the alignment if it is less than
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
