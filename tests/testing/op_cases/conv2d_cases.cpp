#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

OpCase convolution(std::string name, const Shape& x, const Shape& filter, Conv2dOptions options,
                   bool bias = false) {
  OpCase op_case{.name = "conv2d_" + name,
                 .inputs = {x, filter},
                 .op =
                     [options](std::span<const Variable> in) {
                       return conv2d(in[0], in[1], in.size() > 2 ? in[2] : Variable(), options);
                     },
                 // A filter gradient sums over all pixels of the batch, an output over all elements of the
                 // window.
                 .terms = static_cast<double>(std::max(x.numel() / x[3], filter.numel() / filter[0])),
                 .batched = {0}};
  if (bias) op_case.inputs.push_back({filter[0]});
  return op_case;
}

}  // namespace

std::vector<OpCase> conv2d_cases() {
  return {
      convolution("1x1", {2, 3, 4, 5}, {6, 1, 1, 5}, {}),
      convolution("3x3", {2, 5, 6, 3}, {4, 3, 3, 3}, {.padding = 1}),
      convolution("3x3_bias", {2, 5, 6, 3}, {4, 3, 3, 3}, {.padding = 1}, true),
      convolution("3x3_relu", {2, 5, 6, 3}, {4, 3, 3, 3}, {.padding = 1, .relu = true}),
      convolution("3x3_bias_relu", {2, 5, 6, 3}, {4, 3, 3, 3}, {.padding = 1, .relu = true}, true),
      convolution("3x3_stride2", {2, 7, 6, 3}, {5, 3, 3, 3}, {.stride = 2, .padding = 1}),
      convolution("5x5_valid", {1, 8, 7, 2}, {3, 5, 5, 2}, {}, true),
      convolution("7x7_stride2", {1, 9, 9, 3}, {2, 7, 7, 3}, {.stride = 2, .padding = 3}),
      convolution("window_is_image", {3, 3, 3, 2}, {4, 3, 3, 2}, {}),
      convolution("groups", {2, 5, 6, 6}, {9, 3, 3, 2}, {.padding = 1, .groups = 3}, true),
      convolution("depthwise", {2, 5, 6, 4}, {4, 3, 3, 1}, {.stride = 2, .padding = 1, .groups = 4}),
      convolution("depthwise_multiplier_relu", {2, 5, 4, 3}, {6, 3, 3, 1},
                  {.padding = 1, .groups = 3, .relu = true}, true),
      convolution("16_channels", {1, 5, 5, 16}, {16, 3, 3, 16}, {.padding = 1}),
  };
}

}  // namespace convoy::testing
