#include <algorithm>

#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

namespace {

/// A linear layer, with or without a bias and a ReLU. Its gradients are the sums of dy over rows, or of what the ReLU
/// leaves of it.
OpCase linear_case(std::string name, const Shape& x, std::int64_t features, bool bias, bool relu) {
  OpCase c{.name = "linear" + name,
           .inputs = {x, {features, x[-1]}},
           .op =
               [bias, relu](std::span<const Variable> in) {
                 return linear(in[0], in[1], bias ? in[2] : Variable(), relu);
               },
           .terms = static_cast<double>(std::max(x[-1], x.numel() / x[-1])),
           .batched = {0},
           .roundings = 24};
  if (!bias) return c;
  c.inputs.push_back({features});
  // Rows of y with and without whole packs; one or several row blocks; one or several column tiles.
  for (const auto& [rows, columns] : {std::pair<std::int64_t, std::int64_t>{33, 10},
                                      {257, 31},
                                      {64, 33},
                                      {70, 64},
                                      {5003, 8},
                                      {1100, 80},
                                      {2500, 1},
                                      {9, 1032}})
    if (x.rank() == 2) c.tails.push_back({{rows, 3}, {columns, 3}, {columns}});
  return c;
}

}  // namespace

std::vector<OpCase> matmul_cases() {
  const auto op = [](auto x) { return matmul(x[0], x[1]); };
  return {
      {.name = "matmul", .inputs = {{5, 7}, {7, 3}}, .op = op, .terms = 7, .batched = {0}, .roundings = 8},
      {.name = "matmul_vector",
       .inputs = {{1, 33}, {33, 1}},
       .op = op,
       .terms = 33,
       .batched = {0},
       .roundings = 8},
      {.name = "matmul_batch",
       .inputs = {{2, 3, 4, 5}, {2, 3, 5, 2}},
       .op = op,
       .terms = 5,
       .batched = {0, 1},
       .roundings = 8,
       .tails = {{{2, 31, 33}, {2, 33, 32}}, {{3, 65, 16}, {3, 16, 64}}, {{5, 1, 8}, {5, 8, 1}}},
       .benchmark = {{96, 256, 64}, {96, 64, 256}}},
      {.name = "matmul_batch_of_left_factors",
       .inputs = {{2, 3, 4}, {4, 5}},
       .op = op,
       .terms = 6,
       .batched = {0},
       .roundings = 8},
      {.name = "matmul_batch_of_right_factors",
       .inputs = {{3, 4}, {2, 4, 5}},
       .op = op,
       .terms = 10,
       .batched = {1},
       .roundings = 8,
       .tails = {{{31, 33}, {3, 33, 32}}}},
      linear_case("", {5, 7}, 3, true, false),
      linear_case("_sequence", {2, 4, 5}, 3, true, false),
      linear_case("_relu", {5, 7}, 3, true, true),
      linear_case("_relu_without_bias", {5, 7}, 3, false, true),
      linear_case("_without_bias", {5, 7}, 3, false, false),
  };
}

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
                 .batched = {0},
                 .roundings = 0};
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
      convolution("dilated", {2, 7, 6, 3}, {4, 3, 3, 3}, {.padding = 2, .dilation = 2}, true),
      convolution("rectangular", {2, 7, 6, 3}, {4, 2, 3, 3},
                  {.stride = {2, 1}, .padding = {0, 2}, .dilation = {3, 2}}),
      convolution("same_even", {2, 5, 4, 3}, {4, 4, 2, 3}, {.padding = kSamePadding}, true),
      convolution("same_dilated", {1, 6, 5, 4}, {4, 3, 2, 2},
                  {.padding = kSamePadding, .dilation = {2, 3}, .groups = 2}),
      convolution("reflect", {2, 4, 5, 3}, {4, 3, 3, 3},
                  {.padding = {3, 1}, .padding_mode = PaddingMode::reflect}, true),
      convolution("replicate_same", {2, 4, 5, 3}, {4, 2, 3, 3},
                  {.padding = kSamePadding, .padding_mode = PaddingMode::replicate}),
      convolution("circular", {2, 4, 5, 3}, {4, 3, 3, 3},
                  {.stride = 2, .padding = {4, 1}, .relu = true, .padding_mode = PaddingMode::circular},
                  true),
  };
}

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

namespace {

OpCase pooling(std::string name, const Shape& x, Variable (*op)(const Variable&, Pool2dOptions),
               Pool2dOptions options) {
  return {.name = std::move(name),
          .inputs = {x},
          .op = [op, options](std::span<const Variable> in) { return op(in[0], options); },
          .terms = static_cast<double>(options.kernel.height * options.kernel.width),
          .batched = {0}};
}

/// A window over images of some shape.
struct PoolWindow {
  const char* name;
  Shape x;
  Pool2dOptions options;
};

}  // namespace

std::vector<OpCase> pool2d_cases() {
  // 8, 16 and 24 channels come in packs for every type, odd numbers for none.
  const PoolWindow windows[] = {
      {"", {2, 6, 4, 3}, {.kernel = 2, .stride = 2}},
      {"_overlapping", {2, 7, 6, 3}, {.kernel = 3, .stride = 2, .padding = 1}},
      {"_rest_dropped", {1, 5, 5, 2}, {.kernel = 2, .stride = 2}},
      {"_in_packs", {1, 5, 5, 24}, {.kernel = 3, .stride = 2, .padding = 1}},
      {"_dense", {2, 6, 5, 17}, {.kernel = 3, .stride = 1, .padding = 1}},
      {"_with_gaps", {1, 7, 5, 8}, {.kernel = 2, .stride = 3}},
      {"_larger_than_image", {2, 5, 4, 3}, {.kernel = 5, .stride = 1, .padding = 2}},
      {"_disjoint_padded", {1, 9, 9, 6}, {.kernel = 4, .stride = 4, .padding = 2}},
      {"_of_7", {1, 9, 10, 16}, {.kernel = 7, .stride = 2, .padding = 3}},
      {"_of_17", {1, 20, 19, 8}, {.kernel = 17, .stride = 2, .padding = 1}},  // taps in i32
      {"_rectangular", {2, 7, 9, 8}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}},
      {"_disjoint_rectangular", {2, 7, 9, 16}, {.kernel = {2, 3}, .stride = {2, 3}}},
      {"_ceil", {2, 8, 6, 8}, {.kernel = 3, .stride = 2, .ceil_mode = true}},
      {"_ceil_disjoint", {1, 5, 7, 16}, {.kernel = 2, .stride = 2, .ceil_mode = true}},
      // The last window would begin in the padding behind the image, and is dropped.
      {"_ceil_padded", {2, 5, 5, 3}, {.kernel = 2, .stride = {3, 2}, .padding = 1, .ceil_mode = true}},
      {"_ceil_larger_than_image", {1, 2, 4, 3}, {.kernel = 3, .stride = 2, .ceil_mode = true}},
      {"_without_padding",
       {2, 7, 6, 16},
       {.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false}},
      {"_ceil_without_padding",
       {2, 6, 6, 5},
       {.kernel = {3, 2}, .stride = {2, 3}, .padding = 1, .ceil_mode = true, .count_include_pad = false}},
      {"_of_17_one_channel", {1, 18, 19, 1}, {.kernel = 17, .stride = 2, .padding = 1}},
  };
  std::vector<OpCase> cases = {{.name = "global_avg_pool2d",
                                .inputs = {{2, 3, 5, 4}},
                                .op = [](auto x) { return global_avg_pool2d(x[0]); },
                                .terms = 15,
                                .batched = {0},
                                .tails = {{{1, 1, 1, 1}},
                                          {{2, 7, 5, 130}},
                                          {{1, 43, 51, 1}},
                                          {{2, 3, 3, 264}},
                                          {{70, 2, 2, 16}},
                                          {{1, 2, 2, 1025}}}}};
  for (const PoolWindow& window : windows) {
    cases.push_back(pooling(std::string("max_pool2d") + window.name, window.x, max_pool2d, window.options));
    cases.push_back(pooling(std::string("avg_pool2d") + window.name, window.x, avg_pool2d, window.options));
  }
  const std::pair<Shape, Size2d> adaptive[] = {
      {{2, 7, 5, 8}, {3, 2}},   // windows of two sizes, which overlap
      {{2, 8, 6, 16}, {4, 3}},  // ordinary windows
      {{1, 3, 2, 3}, {5, 4}},   // more windows than pixels
      {{2, 5, 7, 3}, {5, 3}},   // of one pixel along one axis
      {{1, 4, 4, 3}, 1},
  };
  for (const auto& [x, size] : adaptive) {
    const std::string name =
        "_pool2d_" + std::to_string(x[1]) + "x" + std::to_string(x[2]) + "_to_" + size.text();
    const auto of = [&](const std::string& kind, Variable (*op)(const Variable&, Size2d)) {
      return OpCase{.name = "adaptive_" + kind + name,
                    .inputs = {x},
                    .op = [op, size = size](auto in) { return op(in[0], size); },
                    .terms = static_cast<double>(x[1] * x[2]),
                    .batched = {0}};
    };
    cases.push_back(of("max", adaptive_max_pool2d));
    cases.push_back(of("avg", adaptive_avg_pool2d));
  }
  for (OpCase& c : cases)
    if (c.name.ends_with("_dense"))
      c.tails = {{{1, 33, 17, 5}}, {{3, 16, 17, 8}}, {{2, 11, 11, 24}}};  // several blocks
  return cases;
}

}  // namespace convoy::testing
