// Comparison of single operations and their gradients with PyTorch (tests/reference). The inputs are equal and
// exact in f32. The operations are computed in f32 and f64, and PyTorch's results in f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using Inputs = std::vector<std::pair<std::string, Variable>>;

const Reference& reference(const std::string& file) {
  static std::map<std::string, Reference> stored;
  return stored.try_emplace(file, file + ".safetensors").first->second;
}

class OpParity : public ::testing::TestWithParam<DType> {
 protected:
  // The bound of the maximum error relative to the maximum value. The longest sum has about 300 terms of similar
  // magnitude, so its rounding error is below sqrt(300) eps of the sum of the magnitudes. Cancellation and
  // exponentials amplify it by at most 10. The bound is 200 eps.
  static constexpr double kRoundings = 200;

  double tolerance(double roundings = kRoundings) const {
    return roundings * (GetParam() == DType::f64 ? 0x1p-53 : 0x1p-24);
  }
  Tensor values(const std::string& name, const Shape& shape, double scale = 1, double offset = 0) const {
    return formula_values(name, shape, GetParam(), scale, offset);
  }
  Variable input(const std::string& name, const Shape& shape, double scale = 1, double offset = 0) const {
    return Variable(values(name, shape, scale, offset), true);
  }
  static Tensor indices(const std::string& name, const Shape& shape, std::int64_t size) {
    return formula_labels(name + "/indices", shape.numel(), static_cast<int>(size)).reshape(shape);
  }
  void expect_near(const Tensor& actual, const std::string& name, const std::string& file = "ops",
                   double roundings = kRoundings) const {
    const Tensor& stored = reference(file).at(name);
    EXPECT_EQ(actual.shape(), stored.shape()) << name;
    EXPECT_TRUE(near(actual, stored, tolerance(roundings))) << name;
  }
  /// Compares y, and the gradients of the inputs for a generated dy.
  void expect_parity(const std::string& name, const Variable& y, const Inputs& inputs,
                     const std::string& file = "ops", double roundings = kRoundings) const {
    expect_near(y.value(), name + "/y", file, roundings);
    backward(y, {.seed = values(name + "/dy", y.shape())});
    for (const auto& [input_name, x] : inputs)
      expect_near(x.grad(), name + "/d" + input_name, file, roundings);
  }
};

TEST_P(OpParity, Conv2d) {
  struct Case {
    std::string name;
    Shape x;  // [N, H, W, I]
    std::int64_t channels;
    int kernel, stride, padding;
  };
  for (const Case& c : {Case{"k3s1p1", {2, 5, 6, 3}, 4, 3, 1, 1}, Case{"k3s2p1", {2, 7, 6, 3}, 4, 3, 2, 1},
                        Case{"k5s1p0", {2, 7, 6, 2}, 3, 5, 1, 0}, Case{"k1s2p0", {2, 5, 6, 4}, 5, 1, 2, 0},
                        Case{"k7s2p3", {1, 9, 8, 3}, 4, 7, 2, 3}, Case{"k2s3p1", {2, 7, 8, 2}, 3, 2, 3, 1},
                        Case{"k3s1p1_16", {1, 7, 7, 16}, 16, 3, 1, 1}}) {
    const std::string name = "conv2d/" + c.name;
    const Variable x = input(name + "/x", c.x);
    const Variable filter = input(name + "/filter", {c.channels, c.kernel, c.kernel, c.x[3]});
    const Variable bias = input(name + "/bias", {c.channels});
    expect_parity(name, conv2d(x, filter, bias, {.stride = c.stride, .padding = c.padding}),
                  {{"x", x}, {"filter", filter}, {"bias", bias}});
  }
}

TEST_P(OpParity, BatchNorm) {
  for (const auto& [name, shape] : {std::pair<std::string, Shape>{"batch_norm/image", {4, 3, 2, 3}},
                                    std::pair<std::string, Shape>{"batch_norm/flat", {6, 5}}}) {
    const std::int64_t channels = shape[-1];
    const Variable gamma = input(name + "/gamma", {channels}, 0.5, 1),
                   beta = input(name + "/beta", {channels});
    const BatchNormStatistics running{Tensor::zeros({channels}, GetParam(), Device::cpu()),
                                      Tensor::full({channels}, 1, GetParam(), Device::cpu())};
    Variable x, y;
    for (int step = 0; step < 3; ++step) {  // the reference has the results of the last step
      x = input(name + "/x" + std::to_string(step), shape, 2, 0.5);
      y = batch_norm(x, gamma, beta, running, /*training=*/true);
      backward(y, {.seed = values(name + "/dy" + std::to_string(step), shape)});
    }
    expect_near(y.value(), name + "/y");
    expect_near(x.grad(), name + "/dx");
    expect_near(gamma.grad(), name + "/dgamma");
    expect_near(beta.grad(), name + "/dbeta");
    expect_near(running.running_mean, name + "/running_mean");
    expect_near(running.running_var, name + "/running_var");

    x = input(name + "/inference/x", shape);
    expect_parity(name + "/inference", batch_norm(x, gamma, beta, running, /*training=*/false),
                  {{"x", x}, {"gamma", gamma}, {"beta", beta}});
  }
}

TEST_P(OpParity, Pools) {
  for (const auto& [window, options] :
       {std::pair<std::string, Pool2dOptions>{"k2s2p0", {.kernel = 2, .stride = 2, .padding = 0}},
        std::pair<std::string, Pool2dOptions>{"k3s2p1", {.kernel = 3, .stride = 2, .padding = 1}}}) {
    const Variable for_max = input("max_pool/" + window + "/x", {2, 7, 6, 3});
    expect_parity("max_pool/" + window, max_pool2d(for_max, options), {{"x", for_max}});
    const Variable for_mean = input("avg_pool/" + window + "/x", {2, 7, 6, 3});
    expect_parity("avg_pool/" + window, avg_pool2d(for_mean, options), {{"x", for_mean}});
  }
  const Variable x = input("global_avg_pool/x", {2, 5, 4, 3});
  expect_parity("global_avg_pool", global_avg_pool2d(x), {{"x", x}});
}

TEST_P(OpParity, Activations) {
  for (const UnaryOp& unary : unary_ops()) {
    const std::string name = unary.name;
    const Variable x = input(name + "/x", {5, 7}, unary.parity_bound, unary.domain.center);
    expect_parity(name, unary.op(x), {{"x", x}});
  }
}

TEST_P(OpParity, Linear) {
  const Variable x = input("linear/x", {3, 5}), weight = input("linear/weight", {4, 5});
  const Variable bias = input("linear/bias", {4});
  expect_parity("linear", linear(x, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}});
}

TEST_P(OpParity, CrossEntropy) {
  for (const auto& [name, smoothing] : {std::pair<std::string, double>{"cross_entropy/plain", 0.0},
                                        std::pair<std::string, double>{"cross_entropy/smoothed", 0.1}}) {
    const Variable logits = input(name + "/logits", {5, 7}, 4);
    const CrossEntropy result =
        cross_entropy(logits, formula_labels(name + "/labels", 5, 7), {.smoothing = smoothing});
    backward(result.loss);
    expect_near(result.losses, name + "/losses");
    expect_near(logits.grad(), name + "/dlogits");
    double total = 0;
    for (const double loss : reference("ops").at(name + "/losses").to_vector<double>()) total += loss;
    EXPECT_NEAR(result.loss.value().item(), total, tolerance() * total);
  }
}

// Of log-probabilities that are not normalized, with class weights; the label -1 is ignored.
TEST_P(OpParity, NllLoss) {
  for (const auto& [suffix, reduction] :
       {std::pair{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}}) {
    const std::string name = std::string("nll_loss/") + suffix;
    std::vector<std::int32_t> labels = formula_labels(name + "/labels", 7, 6).to_vector<std::int32_t>();
    for (std::int32_t& label : labels) --label;
    const Variable x = input(name + "/x", {7, 5}, 4);
    const CrossEntropyOptions options{
        .reduction = reduction, .class_weights = values(name + "/weight", {5}, 0.5, 1), .ignore_index = -1};
    expect_parity(name, nll_loss(x, Tensor::from(labels, {7}, Device::cpu()), options), {{"x", x}}, "losses");
  }
}

// With class weights; the label -1 is ignored.
TEST_P(OpParity, CrossEntropyOptions) {
  for (const auto& [name, reduction] :
       {std::pair{"mean", Reduction::mean}, {"sum", Reduction::sum}, {"none", Reduction::none}})
    for (const double smoothing : {0.0, 0.1}) {
      const std::string path = fmt::format("cross_entropy/{}_{:.1f}", name, smoothing);
      std::vector<std::int32_t> labels = formula_labels(path + "/labels", 7, 6).to_vector<std::int32_t>();
      for (std::int32_t& label : labels) --label;
      const CrossEntropyOptions options{.smoothing = smoothing,
                                        .reduction = reduction,
                                        .class_weights = values(path + "/weight", {5}, 0.5, 1),
                                        .ignore_index = -1};
      for (const auto& [kind, target] : {std::pair{"_labels", Tensor::from(labels, {7}, Device::cpu())},
                                         {"_probabilities", values(path + "/p", {7, 5}, 0.45, 0.5)}}) {
        const Variable x = input(path + "/x", {7, 5}, 4);
        expect_parity(path + kind, cross_entropy(x, target, options).loss, {{"x", x}}, "losses");
      }
    }
}

/// An op at the shapes at which PyTorch's values are stored.
struct ParityCase {
  const char* name;
  std::vector<Shape> inputs;
  std::function<Variable(const std::vector<Variable>&)> op;
  double offset = 0;  // of the arguments
};

Tensor even_positions(const DeviceContext& device) {
  return Tensor::from<std::uint8_t>({1, 0, 1, 0, 1}, {5}, device);
}

std::vector<ParityCase> parity_cases() {
  const Shape a{3, 1, 5}, b{4, 1}, cube{3, 4, 5};
  return {
      {"add", {a, b}, [](auto& x) { return x[0] + x[1]; }},
      {"sub", {a, b}, [](auto& x) { return x[0] - x[1]; }},
      {"mul", {a, b}, [](auto& x) { return x[0] * x[1]; }},
      {"div", {a, b}, [](auto& x) { return x[0] / x[1]; }, 2},
      {"maximum", {a, b}, [](auto& x) { return maximum(x[0], x[1]); }},
      {"minimum", {a, b}, [](auto& x) { return minimum(x[0], x[1]); }},
      {"where", {a, b}, [](auto& x) { return where(even_positions(x[0].context()), x[0], x[1]); }},
      {"sum",
       {cube},
       [](auto& x) {
         return sum(x[0], {0, 2});
       }},
      {"mean",
       {cube},
       [](auto& x) {
         return mean(x[0], {1, -1}, true);
       }},
      {"variance",
       {cube},
       [](auto& x) {
         return variance(x[0], {0, 2});
       }},
      {"max", {cube}, [](auto& x) { return max(x[0], 1); }},
      {"min", {cube}, [](auto& x) { return min(x[0], -1, true); }},
      {"softmax", {cube}, [](auto& x) { return softmax(x[0], 1); }},
      {"log_softmax", {cube}, [](auto& x) { return log_softmax(x[0]); }},
      {"permute",
       {cube},
       [](auto& x) {
         return permute(x[0], {2, 0, 1});
       }},
      {"transpose", {cube}, [](auto& x) { return transpose(x[0], 0, 2); }},
      {"slice", {{3, 6, 2}}, [](auto& x) { return slice(x[0], 1, 1, -1, 2); }},
      {"concat",
       {{3, 2}, {3, 4}},
       [](auto& x) {
         return concat({x[0], x[1], x[0]}, 1);
       }},
      {"stack",
       {{3, 2}, {3, 2}},
       [](auto& x) {
         return stack({x[0], x[1]}, -1);
       }},
      {"pad",
       {{3, 2, 4}},
       [](auto& x) {
         return pad(x[0], {{0, 0}, {2, 1}, {1, 0}}, 0.5);
       }},
  };
}

// Sums have at most 60 terms of similar magnitude. Each result has an error of a few roundings of its largest
// term, so of at most 60 roundings of the largest result after cancellation by a factor of 10.
TEST_P(OpParity, ArithmeticReductionsAndMovement) {
  for (const ParityCase& c : parity_cases()) {
    const std::string name = c.name, letters = "ab";
    std::vector<Variable> x;
    Inputs named;
    for (std::size_t i = 0; i < c.inputs.size(); ++i) {
      x.push_back(input(name + "/" + letters[i], c.inputs[i], 1, c.offset));
      named.emplace_back(letters.substr(i, 1), x.back());
    }
    expect_parity(name, c.op(x), named, "ops", 60);
  }
}

TEST_P(OpParity, BatchedMatmul) {
  struct Case {
    std::string name;
    Shape a, b;
  };
  for (const Case& c :
       {Case{"matmul/batch", {3, 4, 5}, {3, 5, 2}}, Case{"matmul/left_factors", {3, 4, 5}, {5, 2}},
        Case{"matmul/right_factors", {4, 5}, {3, 5, 2}}}) {
    const Variable a = input(c.name + "/a", c.a), b = input(c.name + "/b", c.b);
    expect_parity(c.name, matmul(a, b), {{"a", a}, {"b", b}}, "attention");
  }
}

TEST_P(OpParity, LinearOfSequences) {
  const Variable x = input("linear/x", {2, 3, 5}), weight = input("linear/weight", {4, 5});
  const Variable bias = input("linear/bias", {4});
  expect_parity("linear", linear(x, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}},
                "attention");
}

TEST_P(OpParity, ScaledDotProductAttention) {
  struct Case {
    std::string name;
    std::int64_t batch, heads, queries, keys, depth, width;
    AttentionOptions options;
  };
  for (const Case& c : {Case{"attention/full", 2, 2, 7, 9, 4, 3, {}},
                        Case{"attention/causal", 1, 3, 9, 9, 4, 4, {.causal = true}},
                        Case{"attention/causal_short", 1, 2, 9, 5, 4, 4, {.causal = true, .scale = 0.7}},
                        Case{"attention/scale", 1, 2, 5, 12, 8, 4, {.scale = 2.5}}}) {
    const std::int64_t matrices = c.batch * c.heads;
    const Variable q = input(c.name + "/q", {matrices, c.queries, c.depth}, 2);
    const Variable k = input(c.name + "/k", {matrices, c.keys, c.depth}, 2);
    const Variable v = input(c.name + "/v", {matrices, c.keys, c.width});
    const auto with_heads = [&](const Variable& x) {
      return reshape(x, {c.batch, c.heads, x.shape()[1], x.shape()[2]});
    };
    const Variable y = scaled_dot_product_attention(with_heads(q), with_heads(k), with_heads(v), c.options);
    expect_parity(c.name, reshape(y, {matrices, c.queries, c.width}), {{"q", q}, {"k", k}, {"v", v}},
                  "attention");
  }
}

// Query 2 has no keys.
TEST_P(OpParity, AttentionWithMaskAndBias) {
  std::vector<std::uint8_t> mask(30);
  for (std::size_t i = 0; i < mask.size(); ++i) mask[i] = i % 2 == 0 && i / 6 != 2 ? 1 : 0;
  for (const std::string name : {"attention/mask", "attention/mask_and_bias"}) {
    Inputs inputs = {{"q", input(name + "/q", {3, 5, 4}, 2)},
                     {"k", input(name + "/k", {3, 6, 4}, 2)},
                     {"v", input(name + "/v", {3, 6, 2})}};
    AttentionOptions options{.mask = Tensor::from(mask, {5, 6}, Device::cpu())};
    if (name.ends_with("bias")) {
      options.bias = input(name + "/bias", {5, 6});
      inputs.emplace_back("bias", options.bias);
    }
    expect_parity(name,
                  scaled_dot_product_attention(inputs[0].second, inputs[1].second, inputs[2].second, options),
                  inputs, "attention");
  }
}

TEST_P(OpParity, LossesWithEveryReduction) {
  struct Case {
    std::string name;
    Variable (*op)(const Variable&, const Variable&, Reduction);
    double scale, offset, target_scale, target_offset;
  };
  for (const Case& c :
       {Case{"mse_loss", mse_loss, 1, 0, 1, 0}, Case{"l1_loss", l1_loss, 1, 0, 1, 0},
        Case{"smooth_l1_loss",
             [](const Variable&x, const Variable&t, Reduction r) { return smooth_l1_loss(x, t, r, 0.5); }, 1,
             0, 1, 0},
        Case{"huber_loss",
             [](const Variable&x, const Variable&t, Reduction r) { return huber_loss(x, t, r, 0.75); }, 1, 0,
             1, 0},
        Case{"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits, 40, 0, 0.5, 0.5},
        Case{"kl_divergence", kl_divergence, 2, -3, 0.45, 0.5}})
    for (const auto& [suffix, reduction] :
         {std::pair{"/mean", Reduction::mean}, {"/sum", Reduction::sum}, {"/none", Reduction::none}}) {
      const std::string name = c.name + suffix;
      const Variable x = input(name + "/x", {5, 7}, c.scale, c.offset);
      const Variable target = input(name + "/target", {5, 7}, c.target_scale, c.target_offset);
      const Variable y = c.op(x, target, reduction);
      expect_parity(name, reshape(y, {y.shape().numel()}), {{"x", x}, {"target", target}}, "losses");
    }
}

TEST_P(OpParity, LayerNorm) {
  for (const auto& [name, normalized] : {std::pair<std::string, Shape>{"layer_norm/one_axis", {7}},
                                         std::pair<std::string, Shape>{"layer_norm/two_axes", {5, 7}}}) {
    const Variable x = input(name + "/x", {3, 5, 7}, 2, 0.5);
    const Variable weight = input(name + "/weight", normalized, 0.5, 1);
    const Variable bias = input(name + "/bias", normalized);
    expect_parity(name, layer_norm(x, normalized, weight, bias),
                  {{"x", x}, {"weight", weight}, {"bias", bias}}, "normalization");
  }
  const Variable x = input("layer_norm/plain/x", {4, 9});
  expect_parity("layer_norm/plain", layer_norm(x, {9}, {}, {}, 1e-3), {{"x", x}}, "normalization");
}

TEST_P(OpParity, GroupNorm) {
  struct Case {
    std::string name;
    Shape shape;
    int groups;
  };
  for (const auto& [name, shape, groups] :
       {Case{"group_norm/g2", {2, 3, 4, 6}, 2}, Case{"group_norm/g6", {2, 3, 4, 6}, 6},
        Case{"group_norm/g1", {2, 3, 4, 6}, 1}, Case{"group_norm/flat", {3, 8}, 2}}) {
    const Variable x = input(name + "/x", shape, 2, 0.5);
    const Variable weight = input(name + "/weight", {shape[-1]}, 0.5, 1);
    const Variable bias = input(name + "/bias", {shape[-1]});
    expect_parity(name, group_norm(x, groups, weight, bias), {{"x", x}, {"weight", weight}, {"bias", bias}},
                  "normalization");
  }
}

TEST_P(OpParity, Conv2dGroups) {
  const auto compare = [&](const std::string& name, const Shape& x_shape, const Shape& filter_shape,
                           std::int64_t outputs, const auto& op) {
    const std::string path = "conv2d_groups/" + name;
    const Variable x = input(path + "/x", x_shape), filter = input(path + "/filter", filter_shape),
                   bias = input(path + "/bias", {outputs});
    expect_parity(path, op(x, filter, bias), {{"x", x}, {"filter", filter}, {"bias", bias}}, "conv2d_groups");
  };
  const auto convolve = [](Conv2dOptions options) {
    return [options](const Variable& x, const Variable& filter, const Variable& bias) {
      return conv2d(x, filter, bias, options);
    };
  };
  compare("groups", {2, 5, 6, 6}, {9, 3, 3, 2}, 9, convolve({.padding = 1, .groups = 3}));
  compare("depthwise", {2, 7, 6, 16}, {16, 3, 3, 1}, 16, convolve({.stride = 2, .padding = 1, .groups = 16}));
  compare("multiplier", {1, 5, 5, 4}, {12, 3, 3, 1}, 12, convolve({.padding = 1, .groups = 4}));
  compare("transposed", {2, 3, 4, 6}, {6, 4, 4, 3}, 9,
          [](const Variable& x, const Variable& filter, const Variable& bias) {
            return conv2d_transpose(x, filter, bias, {.stride = 2, .padding = 1, .groups = 3});
          });
}

TEST_P(OpParity, ConvolutionsWithAllWindowsAndPaddings) {
  struct Case {
    const char* name;
    Shape x, filter;  // [N, H, W, I], [O, kH, kW, I / groups]
    Conv2dOptions options;
  };
  for (const Case& c :
       {Case{"dilated", {2, 7, 6, 3}, {4, 3, 3, 3}, {.padding = 2, .dilation = 2}},
        Case{"rectangular",
             {2, 9, 6, 3},
             {4, 2, 3, 3},
             {.stride = {2, 1}, .padding = {0, 2}, .dilation = {3, 2}}},
        Case{"grouped",
             {2, 7, 6, 4},
             {6, 3, 3, 2},
             {.stride = {1, 2}, .padding = {3, 1}, .dilation = {2, 1}, .groups = 2}},
        Case{"same", {2, 5, 4, 3}, {4, 4, 2, 3}, {.padding = kSamePadding, .dilation = {1, 3}}},
        Case{
            "reflect", {2, 4, 5, 3}, {4, 3, 3, 3}, {.padding = {3, 1}, .padding_mode = PaddingMode::reflect}},
        Case{"replicate",
             {2, 4, 5, 3},
             {4, 2, 3, 3},
             {.padding = kSamePadding, .padding_mode = PaddingMode::replicate}},
        Case{"circular",
             {2, 4, 5, 3},
             {4, 3, 3, 3},
             {.stride = 2, .padding = {4, 2}, .padding_mode = PaddingMode::circular}}}) {
    const std::string name = std::string("windows/conv2d_") + c.name;
    const Variable x = input(name + "/x", c.x), filter = input(name + "/filter", c.filter),
                   bias = input(name + "/bias", {c.filter[0]});
    expect_parity(name, conv2d(x, filter, bias, c.options), {{"x", x}, {"filter", filter}, {"bias", bias}},
                  "windows");
  }
}

TEST_P(OpParity, PoolingWithAllWindows) {
  const auto compare = [&](const std::string& name, const Shape& shape, const auto& op) {
    const Variable x = input("windows/" + name + "/x", shape);
    expect_parity("windows/" + name, op(x), {{"x", x}}, "windows");
  };
  const std::tuple<const char*, Shape, Pool2dOptions> pools[] = {
      {"rectangular", {2, 7, 9, 3}, {.kernel = {3, 2}, .stride = {1, 3}, .padding = {1, 0}}},
      {"ceil", {2, 8, 6, 3}, {.kernel = 3, .stride = 2, .ceil_mode = true}},
      {"ceil_padded", {2, 5, 6, 3}, {.kernel = {2, 3}, .stride = {3, 2}, .padding = 1, .ceil_mode = true}},
      {"ceil_larger_than_image", {2, 2, 4, 3}, {.kernel = 3, .stride = 2, .ceil_mode = true}}};
  for (const auto& [window, shape, options] : pools) {
    const std::string name = window;
    Pool2dOptions inside = options;
    inside.count_include_pad = false;
    compare("max_" + name, shape, [&](const Variable& x) { return max_pool2d(x, options); });
    compare("avg_" + name, shape, [&](const Variable& x) { return avg_pool2d(x, options); });
    compare("inside_" + name, shape, [&](const Variable& x) { return avg_pool2d(x, inside); });
  }
  const std::tuple<const char*, Shape, Size2d> adaptive[] = {{"7x5_to_3x2", {2, 7, 5, 3}, {3, 2}},
                                                             {"3x2_to_5x4", {2, 3, 2, 3}, {5, 4}},
                                                             {"8x6_to_4x3", {2, 8, 6, 3}, {4, 3}},
                                                             {"5x4_to_1", {2, 5, 4, 3}, 1}};
  for (const auto& [name, shape, size] : adaptive) {
    compare(std::string("adaptive_max_") + name, shape,
            [&](const Variable& x) { return adaptive_max_pool2d(x, size); });
    compare(std::string("adaptive_avg_") + name, shape,
            [&](const Variable& x) { return adaptive_avg_pool2d(x, size); });
  }
}

TEST_P(OpParity, Conv2dTranspose) {
  struct Case {
    const char* name;
    Shape x;  // [N, H, W, I]
    std::int64_t channels;
    int kernel;
    ConvTranspose2dOptions options;
  };
  for (const Case& c :
       {Case{"k4s2p1", {2, 4, 5, 3}, 4, 4, {.stride = 2, .padding = 1}},
        Case{"k3s2p1o1", {2, 4, 3, 3}, 5, 3, {.stride = 2, .padding = 1, .output_padding = 1}},
        Case{"k2s2p0", {2, 3, 4, 4}, 3, 2, {.stride = 2}},
        Case{"k3s1p1", {1, 5, 5, 16}, 16, 3, {.padding = 1}}}) {
    const std::string name = std::string("conv2d_transpose/") + c.name;
    const Variable x = input(name + "/x", c.x), bias = input(name + "/bias", {c.channels}),
                   filter = input(name + "/filter", {c.x[3], c.kernel, c.kernel, c.channels});
    expect_parity(name, conv2d_transpose(x, filter, bias, c.options),
                  {{"x", x}, {"filter", filter}, {"bias", bias}}, "conv2d_transpose");
  }
}

// A gradient is a sum of at most 40 terms below 1, so it has an error of at most 40 roundings of the largest.
TEST_P(OpParity, IndexSelect) {
  struct Case {
    std::string name;
    Shape x;
    int axis;
    std::int64_t count;
  };
  for (const Case& c :
       {Case{"index_select/first", {5, 3}, 0, 40}, Case{"index_select/middle", {3, 5, 4}, 1, 9},
        Case{"index_select/last", {2, 3, 4}, -1, 7}}) {
    const Variable x = input(c.name + "/x", c.x);
    expect_parity(c.name, index_select(x, c.axis, indices(c.name, {c.count}, c.x[c.axis])), {{"x", x}},
                  "indexing", 40);
  }
}

TEST_P(OpParity, Embedding) {
  const Variable weight = input("embedding/weight", {6, 5});
  expect_parity("embedding", embedding(weight, indices("embedding", {4, 10}, 6)), {{"weight", weight}},
                "indexing", 40);
}

INSTANTIATE_TEST_SUITE_P(, OpParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
