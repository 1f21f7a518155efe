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

// Batch normalization, also with a fused residual and ReLU, and synchronized over two ranks.

namespace {

/// Returns new running statistics. The op updates them, so each call of a finite difference needs its own.
BatchNormStatistics statistics(const Variable& scale) {
  return {Tensor::full(scale.shape(), 0.125, scale.dtype(), scale.context()),
          Tensor::full(scale.shape(), 0.75, scale.dtype(), scale.context())};
}

constexpr FusedActivation kNone = FusedActivation::none, kRelu = FusedActivation::relu,
                          kGelu = FusedActivation::gelu;

OpCase normalization(std::string name, const Shape& x, bool training, FusedActivation activation = kNone) {
  const std::int64_t channels = x[-1];
  return {.name = "batch_norm_" + name,
          .inputs = {x, {channels}, {channels}},
          .op =
              [training, activation](std::span<const Variable> in) {
                const Variable gamma = parameter(in[1]);
                return batch_norm(in[0], gamma, parameter(in[2]), statistics(gamma), training,
                                  {.activation = activation});
              },
          .terms = static_cast<double>(x.numel() / channels),
          .batched = {0},
          .roundings = 64};
}

/// A scale of 1 that requires no gradient.
OpCase fixed_scale(std::string name, const Shape& x, bool training, FusedActivation activation) {
  OpCase c = normalization("fixed_scale_" + name, x, training, activation);
  c.inputs.pop_back();
  c.op = [training, activation](std::span<const Variable> in) {
    const Variable beta = parameter(in[1]);
    const Variable one(Tensor::full(beta.shape(), 1, beta.dtype(), beta.context()));
    return batch_norm(in[0], one, beta, statistics(one), training, {.activation = activation});
  };
  return c;
}

OpCase with_residual(std::string name, const Shape& x, bool training, FusedActivation activation) {
  OpCase c = normalization(std::move(name), x, training, activation);
  c.inputs.push_back(x);
  c.op = [training, activation](std::span<const Variable> in) {
    const Variable gamma = parameter(in[1]);
    return batch_norm(in[0], gamma, parameter(in[2]), statistics(gamma), training, {.activation = activation},
                      in[3]);
  };
  c.batched.push_back(3);
  return c;
}

/// x is its own residual, so one op makes two contributions to its gradient.
OpCase self_residual(std::string name, const Shape& x, FusedActivation activation) {
  OpCase c = normalization(std::move(name), x, true, activation);
  c.op = [activation](std::span<const Variable> in) {
    const Variable gamma = parameter(in[1]);
    return batch_norm(in[0], gamma, parameter(in[2]), statistics(gamma), true, {.activation = activation},
                      in[0]);
  };
  return c;
}

/// A fake group of two ranks. The other rank has 4 constant rows of mean 0.25 and variance 0.5, and a loss of
/// 0.
class FakeTwoRankGroup final : public ProcessGroup {
 public:
  int size() const override { return 2; }
  void all_gather(const Tensor& local, const Tensor& gathered) override {
    constexpr double kRows = 4, kMean = 0.25, kSquares = 2;
    const std::int64_t size = local.numel(), channels = (size - 1) / 2;
    const auto put = [&](std::int64_t offset, std::int64_t count, double value) {
      gathered.slice(offset, {count}).copy_from(Tensor::full({count}, value, DType::f64, gathered.context()));
    };
    put(0, 1, kRows), put(1, channels, kMean), put(1 + channels, channels, kSquares);
    gathered.slice(size, {size}).copy_from(local);
  }
  void all_reduce(const Tensor& sums) override {
    const Tensor rows = sums.slice(0, {1});
    rows.copy_from(Tensor::full({1}, rows.item() + 4, DType::f64, sums.context()));
  }
};

OpCase synchronized_fixed_scale(std::string name, const Shape& x) {
  OpCase c = fixed_scale(std::move(name), x, true, kNone);
  c.op = [](std::span<const Variable> in) {
    const Variable beta = parameter(in[1]);
    const Variable one(Tensor::full(beta.shape(), 1, beta.dtype(), beta.context()));
    return sync_batch_norm(in[0], one, beta, statistics(one), std::make_shared<FakeTwoRankGroup>());
  };
  return c;
}

OpCase synchronized(std::string name, const Shape& x, FusedActivation activation, bool residual) {
  OpCase c = with_residual(std::move(name), x, true, activation);
  if (!residual) c.inputs.pop_back(), c.batched.pop_back();
  c.op = [activation, residual](std::span<const Variable> in) {
    const Variable gamma = parameter(in[1]);
    return sync_batch_norm(in[0], gamma, parameter(in[2]), statistics(gamma),
                           std::make_shared<FakeTwoRankGroup>(), {.activation = activation},
                           residual ? in[3] : Variable());
  };
  return c;
}

}  // namespace

std::vector<OpCase> batch_norm_cases() {
  std::vector<OpCase> cases = {
      normalization("training", {3, 4, 5, 6}, true),
      normalization("training_matrix", {9, 5}, true),
      normalization("training_two_rows", {2, 3}, true),
      normalization("inference", {3, 4, 5, 6}, false),
      normalization("relu_training", {3, 4, 5, 6}, true, kRelu),
      normalization("relu_inference", {3, 4, 5, 6}, false, kRelu),
      normalization("gelu_training", {3, 4, 5, 6}, true, kGelu),
      normalization("gelu_training_packs", {2, 3, 3, 16}, true, kGelu),
      normalization("gelu_inference", {3, 4, 5, 6}, false, kGelu),
      with_residual("residual_training", {3, 4, 5, 6}, true, kNone),
      with_residual("residual_inference", {9, 5}, false, kNone),
      with_residual("residual_relu_training", {3, 4, 5, 6}, true, kRelu),
      with_residual("residual_relu_training_packs", {2, 3, 3, 16}, true, kRelu),
      with_residual("residual_relu_inference", {9, 5}, false, kRelu),
      self_residual("of_itself", {9, 5}, kNone),
      self_residual("relu_of_itself", {9, 5}, kRelu),
      fixed_scale("training", {3, 4, 5, 6}, true, kNone),
      fixed_scale("relu_training_packs", {2, 3, 3, 16}, true, kRelu),
      fixed_scale("inference", {9, 5}, false, kNone),
      synchronized_fixed_scale("part", {3, 4, 5, 6}),
      synchronized("part", {3, 4, 5, 6}, kNone, false),
      synchronized("part_matrix", {9, 5}, kRelu, true),
      synchronized("part_of_one_row", {1, 5}, kNone, true),
      synchronized("gelu_part", {3, 4, 5, 6}, kGelu, false),
  };
  // Channels that come in packs for all types, for some, and for none; one tile of channels, less than one, and
  // several; rows that end within a thread's group, within a block, and after several blocks.
  for (OpCase& c : cases) {
    if (c.name.ends_with("two_rows") || c.name.ends_with("one_row")) c.roundings = 0;  // amplify errors
    if (c.inputs[0] != Shape{3, 4, 5, 6} || c.inputs.size() < 3) continue;
    for (const Shape& x : {Shape{257, 3}, {65, 12}, {33, 136}, {1025, 8}, {70, 264}, {2130, 31}}) {
      const Shape channels{x[-1]};
      c.tails.push_back({x, channels, channels});
      if (c.inputs.size() > 3) c.tails.back().push_back(x);
    }
  }
  return cases;
}

// Layer norm and group norm.

namespace {

/// Group norm with `groups` groups, or layer norm over the last axis for 0.
OpCase norm(std::string name, const Shape& x, int groups) {
  const Shape channels{x[-1]};
  return {.name = std::move(name),
          .inputs = {x, channels, channels},
          .op =
              [groups](std::span<const Variable> in) {
                const Variable weight = parameter(in[1]), bias = parameter(in[2]);
                return groups == 0 ? layer_norm(in[0], weight.shape(), weight, bias)
                                   : group_norm(in[0], groups, weight, bias);
              },
          .terms = 64.0 * static_cast<double>(x.numel()),  // dividing by a small deviation amplifies errors
          .batched = {0},
          .roundings = 24};
}

}  // namespace

std::vector<OpCase> normalization_cases() {
  const auto shapes = [](const Shape& x) { return std::vector<Shape>{x, Shape{x[-1]}, Shape{x[-1]}}; };
  OpCase layer = norm("layer_norm", {3, 4, 7}, 0);
  for (const std::int64_t size : {31, 32, 257, 1024, 1025}) layer.tails.push_back(shapes({5, size}));
  layer.tails.push_back(shapes({257, 33}));
  layer.tails.push_back(shapes({67, 64}));
  layer.benchmark = shapes({4096, 768});
  OpCase group = norm("group_norm", {2, 3, 2, 6}, 3);
  for (const Shape& x : {Shape{2, 5, 5, 48}, Shape{1, 33, 3}, Shape{3, 12, 15, 24}, Shape{5, 9}})
    group.tails.push_back(shapes(x));
  OpCase images = norm("group_norm_of_one_group", {2, 4, 3}, 1);
  OpCase wide = norm("group_norm_32", {1, 2, 96}, 32);
  wide.benchmark = shapes({16, 32, 32, 128});
  return {
      std::move(layer),
      {.name = "layer_norm_two_axes",
       .inputs = {{3, 4, 5}, {4, 5}},
       .op =
           [](auto x) {
             return layer_norm(x[0], {4, 5}, parameter(x[1]), {});
           },
       .terms = 4000,
       .batched = {0},
       .roundings = 24},
      {.name = "layer_norm_without_parameters",
       .inputs = {{3, 8}},
       .op = [](auto x) { return layer_norm(x[0], {8}, {}, {}, 1e-3); },
       .terms = 2000,
       .batched = {0},
       .roundings = 24},
      {.name = "layer_norm_long_row",  // a block per row on a GPU
       .inputs = {{1, 1030}},
       .op = [](auto x) { return layer_norm(x[0], {1030}); },
       .terms = 64.0 * 1030,
       .batched = {0},
       .roundings = 24},
      {.name = "group_norm_without_weight",
       .inputs = {{2, 3, 6}, {6}},
       .op = [](auto x) { return group_norm(x[0], 2, {}, parameter(x[1])); },
       .terms = 4000,
       .batched = {0},
       .roundings = 24},
      std::move(group),
      std::move(images),
      std::move(wide),
  };
}

// Scaled dot-product attention.

namespace {

std::vector<Shape> shapes(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys,
                          std::int64_t depth, std::int64_t width) {
  return {{batch, heads, queries, depth}, {batch, heads, keys, depth}, {batch, heads, keys, width}};
}

OpCase attention(std::string name, std::vector<Shape> inputs, AttentionOptions options) {
  const double terms = static_cast<double>(inputs[0][-2] + inputs[1][-2] + inputs[0][-1]);
  return {.name = std::move(name),
          .inputs = std::move(inputs),
          .op = [options](auto x) { return scaled_dot_product_attention(x[0], x[1], x[2], options); },
          .domain = {.bound = 2},
          .terms = 16 * terms,  // errors of scores are amplified by scores of a magnitude of about 4
          .batched = {0, 1, 2}};
}

}  // namespace

std::vector<OpCase> attention_cases() {
  OpCase full = attention("scaled_dot_product_attention", shapes(2, 2, 3, 5, 4, 3), {});
  full.tails = {shapes(1, 2, 65, 33, 8, 16), shapes(1, 1, 3, 1025, 4, 4), shapes(2, 1, 64, 257, 16, 8),
                shapes(1, 1, 1, 1, 1, 1)};
  full.benchmark = shapes(8, 12, 256, 256, 64, 64);
  OpCase causal =
      attention("scaled_dot_product_attention_causal", shapes(2, 1, 5, 5, 4, 3), {.causal = true});
  causal.tails = {shapes(1, 2, 129, 129, 8, 8), shapes(1, 1, 300, 300, 4, 4), shapes(1, 1, 33, 290, 4, 4)};
  causal.benchmark = shapes(8, 12, 256, 256, 64, 64);
  return {
      std::move(full),
      std::move(causal),
      attention("scaled_dot_product_attention_few_keys", shapes(1, 2, 6, 3, 4, 2), {.causal = true}),
      attention("scaled_dot_product_attention_few_queries", shapes(1, 2, 3, 6, 4, 2), {.causal = true}),
      attention("scaled_dot_product_attention_scale", {{2, 3, 4}, {2, 5, 4}, {2, 5, 4}}, {.scale = 0.8}),
      // A bias per pair of positions, a causal mask and probabilities that are changed: all of the
      // composition.
      {.name = "scaled_dot_product_attention_causal_with_bias",
       .inputs = {{2, 3, 5, 4}, {2, 3, 6, 4}, {2, 3, 6, 2}, {3, 5, 6}},
       .op =
           [](auto x) {
             return scaled_dot_product_attention(
                 x[0], x[1], x[2],
                 {.causal = true, .bias = x[3], .dropout = [](const Variable& p) { return p * 1.25; }});
           },
       .terms = 60,
       .roundings = 0},
      {.name = "scaled_dot_product_attention_mask",
       .inputs = {{2, 3, 4}, {2, 5, 4}, {2, 5, 2}},
       .op =
           [](auto x) {
             // The second query has no keys.
             const Tensor mask = Tensor::from<std::uint8_t>({1, 0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0},
                                                            {3, 5}, x[0].context());
             return scaled_dot_product_attention(x[0], x[1], x[2], {.mask = mask});
           },
       .terms = 30,
       .roundings = 0},
      {.name = "scaled_dot_product_attention_of_itself",
       .inputs = {{2, 4, 3}},
       .op = [](auto x) { return scaled_dot_product_attention(x[0], x[0], x[0]); },
       .terms = 64,
       .batched = {0}},
  };
}

namespace {

/// Every third label is ignored if a label has another number than that of its class.
Tensor labels_for(const Variable& logits, bool ignores) {
  const auto class_count = static_cast<std::size_t>(logits.shape()[-1]);
  std::vector<std::int32_t> labels(static_cast<std::size_t>(logits.shape().numel()) / class_count);
  for (std::size_t i = 0; i < labels.size(); ++i)
    labels[i] = ignores && i % 3 == 1 ? -7 : static_cast<std::int32_t>((11 * i + 1) % class_count);
  return Tensor::from(
      labels, Shape(logits.shape().sizes().first(static_cast<std::size_t>(logits.shape().rank() - 1))),
      logits.context());
}

/// Returns drawn positive numbers in the type of the losses of logits.
Tensor positive_for(const Variable& logits, const Shape& shape) {
  return drawn(shape, is_half(logits.dtype()) ? DType::f32 : logits.dtype(), logits.context(), "positive",
               {.bound = 0.5, .center = 0.75});
}

/// Labels, or probabilities, with class weights and ignored rows.
OpCase weighted_cross_entropy(std::string name, Shape logits, Reduction reduction, bool has_labels,
                              double smoothing, bool of_log_p = false) {
  return {
      .name = std::move(name),
      .inputs = {logits},
      .op =
          [=](std::span<const Variable> x) {
            const Tensor target = has_labels ? labels_for(x[0], true) : positive_for(x[0], x[0].shape());
            const CrossEntropyOptions options{.smoothing = smoothing,
                                              .reduction = reduction,
                                              .class_weights = positive_for(x[0], {x[0].shape()[-1]}),
                                              .ignore_index = -7};
            return of_log_p ? nll_loss(x[0], target, options) : cross_entropy(x[0], target, options).loss;
          },
      .terms = 2 * static_cast<double>(logits.numel()),
      .batched = reduction == Reduction::mean ? std::vector<std::size_t>() : std::vector<std::size_t>{0},
      .roundings = 64,
      .tails =
          {{{4, 1}}, {{31, 10}}, {{4, 16}}, {{3, 17}}, {{5, 33}}, {{3, 2, 100}}, {{2, 1024}}, {{2, 1025}}},
      .benchmark = {{128, 1000}}};
}

OpCase cross_entropy_case(std::string name, std::int64_t samples, std::int64_t classes, double smoothing) {
  return {
      .name = std::move(name),
      .inputs = {{samples, classes}},
      .op =
          [smoothing](std::span<const Variable> x) {
            return cross_entropy_sum(x[0], labels_for(x[0], false), smoothing);
          },
      .terms = static_cast<double>(samples * classes),
      .batched = {0},
      .roundings = 32,
      // Short rows, up to the largest number of rows and classes of one block, and beyond; lanes with no class,
      // one class, and several classes; warps without a row; rows that a whole block processes.
      .tails = {{{1, 2}},
                {{31, 10}},
                {{257, 3}},
                {{1024, 16}},
                {{1025, 2}},
                {{3, 17}},
                {{33, 32}},
                {{3, 33}},
                {{6, 100}},
                {{5, 1000}},
                {{2, 1024}},
                {{2, 1025}},
                {{3, 1537}}}};
}

using Loss = Variable (*)(const Variable&, const Variable&, Reduction);

OpCase loss(std::string name, Loss op, Reduction reduction, const Domain& domain) {
  const bool reduces = reduction != Reduction::none;
  OpCase c{.name = std::move(name),
           .inputs = {{5, 7}, {5, 7}},
           .op = [op, reduction](auto x) { return op(x[0], x[1], reduction); },
           .domain = domain,
           .terms = reduces ? 35.0 : 1.0,
           .roundings = 24,
           .tails = {{{1}, {1}}, {{31}, {31}}, {{33}, {33}}, {{257}, {257}}, {{8193}, {8193}}},
           .benchmark = {{4096, 1024}, {4096, 1024}}};
  if (reduction != Reduction::mean) c.batched = {0, 1};
  if (reduces) c.tails.push_back({{3, 8195}, {3, 8195}});
  return c;
}

}  // namespace

std::vector<OpCase> loss_cases() {
  const Domain logits{.bound = 3};
  const Domain probabilities{.bound = 0.45, .center = 0.5};
  std::vector<OpCase> cases = {cross_entropy_case("cross_entropy", 5, 7, 0),
                               cross_entropy_case("cross_entropy_smoothed", 4, 10, 0.2),
                               cross_entropy_case("cross_entropy_one", 1, 1, 0)};
  for (const bool has_labels : {false, true}) {
    const std::string prefix = has_labels ? "cross_entropy_labels_" : "cross_entropy_probabilities_";
    cases.push_back(weighted_cross_entropy(prefix + "mean", {5, 7}, Reduction::mean, has_labels, 0.2));
    cases.push_back(weighted_cross_entropy(prefix + "sum", {4, 10}, Reduction::sum, has_labels, 0));
    cases.push_back(weighted_cross_entropy(has_labels ? "nll_loss_labels" : "nll_loss_probabilities", {5, 7},
                                           has_labels ? Reduction::mean : Reduction::none, has_labels, 0,
                                           true));
    cases.push_back(weighted_cross_entropy(prefix + "none", {2, 3, 5}, Reduction::none, has_labels, 0.1));
  }
  for (const auto& [suffix, reduction] :
       {std::pair{"", Reduction::mean}, {"_sum", Reduction::sum}, {"_none", Reduction::none}}) {
    cases.push_back(loss(std::string("mse_loss") + suffix, mse_loss, reduction, {}));
    cases.push_back(loss(std::string("l1_loss") + suffix, l1_loss, reduction, {}));
    const auto smooth_l1 = [](const Variable& x, const Variable& t, Reduction r) {
      return smooth_l1_loss(x, t, r, 0.5);
    };
    cases.push_back(loss(std::string("smooth_l1_loss") + suffix, smooth_l1, reduction, {}));
    const auto huber = [](const Variable& x, const Variable& t, Reduction r) {
      return huber_loss(x, t, r, 0.75);
    };
    cases.push_back(loss(std::string("huber_loss") + suffix, huber, reduction, {}));
    cases.push_back(loss(std::string("binary_cross_entropy_with_logits") + suffix,
                         binary_cross_entropy_with_logits, reduction, logits));
    cases.push_back(loss(std::string("kl_divergence") + suffix, kl_divergence, reduction, probabilities));
  }
  return cases;
}

}  // namespace convoy::testing
