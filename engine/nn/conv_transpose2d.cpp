#include "convoy/engine/nn/conv_transpose2d.h"

#include <cmath>

#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"

namespace convoy::nn {

ConvTranspose2d::ConvTranspose2d(int in_channels, int out_channels, ConvTranspose2dLayerOptions options)
    : in_(in_channels), out_(out_channels), options_(options) {
  check(in_ > 0 && out_ > 0 && options.kernel > 0 && options.stride > 0,
        "ConvTranspose2d {} -> {} with kernel {} and stride {}: expected positive numbers", in_, out_,
        options.kernel, options.stride);
  check(options.padding >= 0, "ConvTranspose2d {} -> {}: found padding {}, expected at least 0", in_, out_,
        options.padding);
  check(options.output_padding >= 0 && options.output_padding < options.stride,
        "ConvTranspose2d {} -> {}: found output padding {}, expected 0 to {}, which is less than the stride",
        in_, out_, options.output_padding, options.stride - 1);
  check(options.groups > 0 && in_ % options.groups == 0 && out_ % options.groups == 0,
        "ConvTranspose2d {} -> {}: found {} groups, expected a divisor of both numbers of channels", in_,
        out_, options.groups);
  const int group_outputs = out_ / options.groups;
  const double bound = 1 / (options.kernel * std::sqrt(static_cast<double>(group_outputs)));
  weight_ = add_parameter("weight", {in_, options.kernel, options.kernel, group_outputs},
                          ParameterKind::filter, Init::uniform(bound));
  if (options.bias) bias_ = add_parameter("bias", {out_}, ParameterKind::bias, Init::uniform(bound));
}

Variable ConvTranspose2d::forward(const Variable& x, const ForwardContext&) {
  check(x.shape().rank() == 4, "input {}, expected images [N, H, W, C]", x.shape().text());
  check(x.shape()[3] == in_, "input {} has {} channels, expected {}", x.shape().text(), x.shape()[3], in_);
  return conv2d_transpose(x, for_input(weight_, x), for_input(bias_, x),
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .groups = options_.groups});
}

std::string ConvTranspose2d::describe() const {
  std::string text =
      fmt::format("ConvTranspose2d {} -> {}, {}x{}", in_, out_, options_.kernel, options_.kernel);
  if (options_.stride != 1) text += fmt::format(" stride {}", options_.stride);
  if (options_.padding != 0) text += fmt::format(" padding {}", options_.padding);
  if (options_.output_padding != 0) text += fmt::format(" output padding {}", options_.output_padding);
  if (options_.groups != 1) text += fmt::format(" groups {}", options_.groups);
  return text;
}

}  // namespace convoy::nn
