// Descriptors of the tensors and the operations of cuDNN operation graphs: convolutions and pointwise
// operations on channels-last arrays. All functions throw DeviceError if cuDNN rejects a descriptor.
#pragma once

#include <array>
#include <cstdint>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/cudnn/descriptor.h"
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

/// Returns the strides and paddings of a convolution, which sums in f32.
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

}  // namespace convoy::kernels
