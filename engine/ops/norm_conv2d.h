// Batch norm inside convolutions, for networks such as
//   convolution, batch norm, ReLU, convolution, batch norm.
// A convolution also computes the statistics of its result, which a batch norm in training needs. The next
// convolution normalizes its input while it reads it, so the normalized values are neither stored nor saved
// for the backward pass. Results have the bits of conv2d() and batch_norm(), except on a GPU where a fused
// kernel is chosen (kernels/norm_conv2d.h). Errors are those of conv2d() and of batch_norm() in training.
#pragma once

#include "convoy/engine/ops/ops.h"

namespace convoy {

/// A batch norm in training. `options.activation` is not read: the function that normalizes decides.
struct BatchNormParameters {
  Variable gamma;               // the scale [C], f32 if the input is f16 or bf16, else of its type
  Variable beta;                // the shift [C]
  BatchNormStatistics running;  // [C], updated when the statistics of a batch are computed
  BatchNormOptions options;     // epsilon and momentum
};

/// The input of a batch norm in training, which is not normalized yet, and the statistics of the batch.
struct BatchNormInput {
  Variable x;           // [N, …, C]
  Variable gamma;       // the scale [C]
  Variable beta;        // the shift [C]
  Tensor mean;          // [C]
  Tensor inverse_std;   // [C], as in kernels/batchnorm.h
  Tensor coefficients;  // [2, C], as in kernels/batchnorm.h
};

/// Convolves x [N, H, W, I] with filter [O, kH, kW, I], and computes the statistics of the result for the
/// batch norm `next`. `options.relu` must be false.
BatchNormInput conv2d_statistics(const Variable& x, const Variable& filter, const BatchNormParameters& next,
                                 Conv2dOptions options = {});
/// Does the same for the convolution's input max(batch norm of input.x, 0). Saves input.x for the backward
/// pass, which computes the gradients of input.x, gamma and beta.
BatchNormInput norm_conv2d(const BatchNormInput& input, const Variable& filter,
                           const BatchNormParameters& next, Conv2dOptions options = {});
/// Returns the result of the batch norm, plus `residual` unless it is undefined, after the activation.
Variable normalize(const BatchNormInput& input, NormActivation activation, const Variable& residual = {});

}  // namespace convoy
