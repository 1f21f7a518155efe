// The convolutions of the models of this project.
#pragma once

#include <vector>

#include "convoy/kernels/cuda/cudnn/conv2d_graph.h"

namespace convoy::testing {

/// The number of images of each convolution.
inline constexpr std::int64_t kPlannedBatch = 128;

/// One convolution of a model.
struct ModelConvolution {
  kernels::ConvSizes sizes;
  bool has_bias;
  friend auto operator<=>(const ModelConvolution&, const ModelConvolution&) = default;
};

/// Returns each different convolution of each model for batches of kPlannedBatch images, in a fixed order:
/// for images of 32x32 pixels, and of 224x224 if the model has a stem for them. The shapes are those that the
/// layers see when the model runs.
std::vector<ModelConvolution> model_convolutions();

/// Returns the problems of a convolution: forward, with each epilogue if it has a bias, and both gradients.
std::vector<kernels::Conv2dProblem> problems_of(const ModelConvolution& convolution, DType dtype);

}  // namespace convoy::testing
