#include "convoy/engine/ops/conv2d_transpose.h"

#include <algorithm>

#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

OpCase transposed(std::string name, const Shape& x, const Shape& filter, ConvTranspose2dOptions options,
                  bool bias = false) {
  OpCase op_case{.name = "conv2d_transpose_" + name,
                 .inputs = {x, filter},
                 .op =
                     [options](std::span<const Variable> in) {
                       return conv2d_transpose(in[0], in[1], in.size() > 2 ? in[2] : Variable(), options);
                     },
                 // A filter gradient sums over all pixels of the batch, dx over the window and all outputs.
                 .terms = static_cast<double>(std::max(x.numel() / x[3], filter.numel() / filter[0])),
                 .batched = {0},
                 .roundings = 8};
  if (bias) op_case.inputs.push_back({filter[3] * options.groups});
  return op_case;
}

}  // namespace

std::vector<OpCase> conv2d_transpose_cases() {
  std::vector<OpCase> cases = {
      transposed("4x4_stride2", {2, 3, 4, 3}, {3, 4, 4, 2}, {.stride = 2, .padding = 1}, true),
      transposed("3x3_stride2_output_padding", {2, 3, 2, 3}, {3, 3, 3, 4},
                 {.stride = 2, .padding = 1, .output_padding = 1}),
      transposed("2x2_stride2", {2, 3, 2, 4}, {4, 2, 2, 3}, {.stride = 2}, true),
      transposed("3x3", {1, 4, 3, 3}, {3, 3, 3, 2}, {.padding = 1}, true),
      transposed("groups", {2, 3, 2, 6}, {6, 3, 3, 2}, {.stride = 2, .padding = 1, .groups = 3}, true),
      // No window of the convolution covers the added row and column, which are only the bias.
      transposed("1x1_stride3_output_padding", {1, 2, 3, 2}, {2, 1, 1, 3}, {.stride = 3, .output_padding = 2},
                 true),
  };
  cases[0].tails = {{{1, 5, 3, 31}, {31, 4, 4, 33}, {33}}, {{2, 9, 7, 17}, {17, 4, 4, 8}, {8}}};
  cases[0].benchmark = {{32, 16, 16, 64}, {64, 4, 4, 32}, {32}};
  return cases;
}

std::vector<ErrorCase> conv2d_transpose_error_cases() {
  return {
      {"conv2d_transpose_rank",
       [] {
         conv2d_transpose(zeros({4, 4, 3}), zeros({3, 2, 2, 5}), {});
       },
       "conv2d_transpose: input [4, 4, 3] has 3 dimensions, expected 4"},
      {"conv2d_transpose_channels",
       [] {
         conv2d_transpose(zeros({1, 4, 4, 3}), zeros({2, 2, 2, 5}), {});
       },
       "conv2d_transpose: input [1, 4, 4, 3] has 3 channels, filter [2, 2, 2, 5] expects 2"},
      {"conv2d_transpose_bias",
       [] {
         conv2d_transpose(zeros({1, 4, 4, 3}), zeros({3, 2, 2, 5}), zeros({3}));
       },
       "conv2d_transpose: bias [3], expected [5]"},
      {"conv2d_transpose_type",
       [] {
         conv2d_transpose(zeros({1, 4, 4, 3}), zeros({3, 2, 2, 5}, DType::f64), {});
       },
       "conv2d_transpose: element types of f32 [1, 4, 4, 3] and f64 [3, 2, 2, 5] differ"},
      {"conv2d_transpose_stride",
       [] {
         conv2d_transpose(zeros({1, 4, 4, 3}), zeros({3, 2, 2, 5}), {}, {.stride = 0});
       },
       "conv2d_transpose: found filter [3, 2, 2, 5], stride 0, padding 0, expected at least 1, 1 and 0"},
      {"conv2d_transpose_output_padding",
       [] {
         conv2d_transpose(zeros({1, 4, 4, 3}), zeros({3, 2, 2, 5}), {}, {.stride = 2, .output_padding = 2});
       },
       "conv2d_transpose: found output padding 2, expected 0 to 1"},
      {"conv2d_transpose_no_pixels",
       [] {
         conv2d_transpose(zeros({1, 1, 4, 3}), zeros({3, 2, 2, 5}), {}, {.padding = 1});
       },
       "make 0 pixels, expected at least 1"},
  };
}

}  // namespace convoy::testing
