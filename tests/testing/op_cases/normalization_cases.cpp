#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

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

}  // namespace convoy::testing
