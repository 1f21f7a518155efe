// Convolutions that are fused with the operations before or after them in a ResNet, as cuDNN operation
// graphs. Convoy does not run these graphs yet; cuDNN compiles kernels for them at run time.
#pragma once

#include <memory>
#include <string>

#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"

namespace convoy::testing {

enum class FusedGraph : std::uint8_t {
  scale_bias_add_relu,  // y = relu(scale * (x * filter) + bias + residual): inference with a batch norm
  relu_gradient,        // dx = transposed convolution of dy, where the ReLU's output was positive, else 0
  channel_sums,         // y = x * filter, and for each channel the sums of y and of y^2 over the batch
};

std::string to_string(FusedGraph fused);

/// Returns the finalized graph for channels-last arrays of one type. scale, bias and the sums are f32.
/// Intermediate results are f32. Throws DeviceError if cuDNN rejects the graph.
std::shared_ptr<const kernels::CudnnGraph> make_fused_graph(const kernels::CudnnTarget& target,
                                                            FusedGraph fused, DType dtype,
                                                            const kernels::ConvSizes& sizes);

}  // namespace convoy::testing
