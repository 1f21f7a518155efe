// The layer of a transposed convolution.
#pragma once

#include <string>

#include "convoy/engine/nn/module.h"
#include "convoy/engine/ops/conv2d_transpose.h"

namespace convoy::nn {

/// Options of ConvTranspose2d. stride, padding and output_padding are as in ConvTranspose2dOptions.
struct ConvTranspose2dLayerOptions {
  int kernel = 2;          // side of the square filter
  int stride = 1;          // on both axes
  int padding = 0;         // on all four sides
  int output_padding = 0;  // less than the stride
  int groups = 1;          // of channels; must divide the numbers of input and of output channels
  bool bias = true;        // whether there is a bias
};

/// A transposed convolution of [N, H, W, in] to [N, H', W', out], with H' = (H - 1) stride - 2 padding +
/// kernel + output_padding. The weight is [in, kernel, kernel, out / groups] in memory, and in checkpoints
/// [in, out / groups, kernel, kernel] as in PyTorch. Initial values are PyTorch's defaults: weight and bias
/// from U(-b, b) with b = 1/sqrt(kernel^2 out / groups), since PyTorch derives the fan-in from axis 1 of
/// the weight.
class ConvTranspose2d final : public Module {
 public:
  /// Throws UsageError unless channels, kernel and stride are positive, the padding is not negative,
  /// output_padding is from 0 to stride - 1, and `groups` divides both numbers of channels.
  ConvTranspose2d(int in_channels, int out_channels, ConvTranspose2dLayerOptions options);
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  int in_, out_;
  ConvTranspose2dLayerOptions options_;
  Variable weight_, bias_;  // bias_ is undefined without a bias
};

}  // namespace convoy::nn
