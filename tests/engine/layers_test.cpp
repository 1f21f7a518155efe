// Tests of nn::LayerNorm and nn::GroupNorm, and of frozen statistics of nn::BatchNorm2d.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/engine/values.h"
#include "tests/testing/op_cases/op_case.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::message_of;

std::vector<std::string> parameters_of(const nn::Module& layer) {
  std::vector<std::string> names;
  for (const nn::NamedParameter& one : layer.parameters())
    names.push_back(one.name + " " + one.variable.shape().text());
  return names;
}

TEST(NormalizationLayers, HaveTheParametersOfPyTorch) {
  EXPECT_THAT(parameters_of(nn::LayerNorm({4, 5})), ElementsAre("weight [4, 5]", "bias [4, 5]"));
  EXPECT_THAT(parameters_of(nn::LayerNorm({5}, {.bias = false})), ElementsAre("weight [5]"));
  EXPECT_THAT(parameters_of(nn::LayerNorm({5}, {.affine = false})), IsEmpty());
  EXPECT_THAT(parameters_of(nn::GroupNorm(2, 6)), ElementsAre("weight [6]", "bias [6]"));
  EXPECT_THAT(parameters_of(nn::GroupNorm(2, 6, {.affine = false})), IsEmpty());
}

TEST(NormalizationLayers, ComputeTheOpsWithTheirOptions) {
  const Variable x(testing::drawn({3, 4, 6}, DType::f32, Device::cpu(), "x"));
  const auto values = [](const Variable& y) { return y.value().to_vector<float>(); };
  nn::LayerNorm layer({4, 6}, {.epsilon = 0.5});
  layer.initialize(1);
  EXPECT_EQ(values(layer(x)), values(layer_norm(x, {4, 6}, {}, {}, 0.5)));  // weight 1 and bias 0
  nn::GroupNorm group(3, 6, {.epsilon = 0.25});
  group.initialize(1);
  EXPECT_EQ(values(group(x)), values(group_norm(x, 3, {}, {}, 0.25)));
}

TEST(NormalizationLayers, RefuseSizesThatTheyCannotCompute) {
  EXPECT_THAT(message_of<UsageError>([] { nn::LayerNorm(Shape{}); }), HasSubstr("LayerNorm []: expected"));
  EXPECT_THAT(message_of<UsageError>([] { nn::GroupNorm(4, 6); }), HasSubstr("GroupNorm 4 of 6 channels"));
  const Variable x(Tensor::zeros({2, 5}, DType::f32, Device::cpu()));
  EXPECT_THAT(message_of<UsageError>([&] {
                nn::GroupNorm layer(2, 6);
                layer(x);
              }),
              HasSubstr("input [2, 5], expected [N, …, 6]"));
}

// max(momentum, 1 / n): the mean of the first ten batches, whatever the initial values are, then a moving average.
TEST(BatchNorm2d, AveragesTheFirstBatchesIfItKnowsTheirNumber) {
  const DeviceContext device = Device::cpu();
  nn::BatchNorm2d norm(1), plain(1);
  for (nn::BatchNorm2d* const each : {&norm, &plain}) each->initialize(1);
  norm.running().running_mean.copy_from(Tensor::full({1}, 1e6, DType::f32, device));
  double mean = 0, plain_mean = 0;
  for (int n = 1; n <= 14; ++n) {
    const auto batch_mean = static_cast<float>(n * n);
    const Variable x(Tensor::from(std::vector<float>{batch_mean - 1, batch_mean + 1}, {2, 1, 1, 1}, device));
    norm(x, {.training = true, .norm_batch = Tensor::full({1}, n, DType::f64, device)});
    plain(x, {.training = true});
    mean += std::max(0.1, 1.0 / n) * (batch_mean - mean);
    plain_mean += 0.1 * (batch_mean - plain_mean);
    const auto is = [](double value) { return ElementsAre(FloatNear(static_cast<float>(value), 1e-4F)); };
    EXPECT_THAT(norm.running().running_mean.to_vector<float>(), is(mean)) << n;
    EXPECT_THAT(norm.running().running_var.to_vector<float>(), is(2)) << "of two rows, unbiased";
    EXPECT_THAT(plain.running().running_mean.to_vector<float>(), is(plain_mean)) << "as PyTorch";
  }
  EXPECT_THAT(message_of<UsageError>([&] {
                norm(Variable(Tensor::full({2, 1, 1, 1}, 1, DType::f32, device)),
                     {.training = true, .norm_batch = Tensor::full({1}, 1, DType::f32, device)});
              }),
              HasSubstr("the number of the batch is f32 [1]"));
}

TEST(BatchNorm2d, FrozenStatisticsAreThoseOfEvaluationInTrainingToo) {
  const auto norm = std::make_shared<nn::BatchNorm2d>(8);
  nn::Sequential net({{"conv", std::make_shared<nn::Conv2d>(3, 8, nn::Conv2dLayerOptions{.bias = false})},
                      {"bn", norm},
                      {"relu", std::make_shared<nn::Activation>(nn::ActivationKind::relu)}});
  net.initialize(1);
  norm->running().running_mean.copy_from(Tensor::full({8}, 0.25, DType::f32, Device::cpu()));
  const Variable images(testing::drawn({2, 8, 8, 3}, DType::f32, Device::cpu(), "x", {.bound = 2}));
  const auto outputs = [&](bool training) {
    return net(images, {.training = training}).value().to_vector<float>();
  };
  const std::vector<float> evaluated = outputs(false);
  norm->freeze_statistics();
  EXPECT_TRUE(norm->is_frozen());
  EXPECT_EQ(outputs(true), evaluated);
  EXPECT_THAT(norm->running().running_mean.to_vector<float>(), ::testing::Each(0.25F));
  norm->freeze_statistics(false);
  EXPECT_NE(outputs(true), evaluated);
  EXPECT_THAT(norm->running().running_mean.to_vector<float>(), ::testing::Not(::testing::Each(0.25F)));
}

// Tests of nn::MultiheadAttention and nn::TransformerEncoderLayer; their losses are compared with PyTorch's in
// tests/models/vision_transformer_parity_test.cpp.

using ::testing::Pointwise;
using testing::values_of;

TEST(MultiheadAttention, OfThreeEqualInputsIsSelfAttention) {
  nn::MultiheadAttention layer(8, 2);
  layer.initialize(1);
  const Variable x(testing::drawn({2, 5, 8}, DType::f32, Device::cpu(), "x"));
  EXPECT_THAT(values_of(layer({x, x, x}).front()),
              Pointwise(::testing::FloatNear(1e-6F), values_of(layer(x))));
}

TEST(MultiheadAttention, AttendsFromOneSequenceToAnother) {
  nn::MultiheadAttention layer(8, 4);
  layer.initialize(1);
  const Variable query(testing::drawn({2, 3, 8}, DType::f32, Device::cpu(), "query"));
  const Variable memory(Tensor::full({2, 7, 8}, 0.5, DType::f32, Device::cpu()));
  const Variable y = layer({query, memory, memory}).front();
  EXPECT_EQ(y.shape(), (Shape{2, 3, 8}));
  // All keys are equal, so each query gets the same mean of the values.
  const std::vector<float> values = values_of(y);
  for (std::size_t i = 8; i < values.size(); ++i) EXPECT_NEAR(values[i], values[i - 8], 1e-6);
}

TEST(MultiheadAttention, WhenCausalDoesNotSeeLaterPositions) {
  nn::MultiheadAttention layer(4, 1, {.causal = true});
  layer.initialize(1);
  const Tensor x = testing::drawn({1, 3, 4}, DType::f32, Device::cpu(), "x");
  Tensor changed = x.clone();
  changed.reshape({3, 4}).rows(2, 3).copy_from(Tensor::full({1, 4}, 9, DType::f32, Device::cpu()));
  const std::vector<float> before = values_of(layer(Variable(x))),
                           after = values_of(layer(Variable(changed)));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(before[i] == after[i], i < 8) << i;
}

TEST(MultiheadAttention, DropsProbabilitiesInTrainingOnly) {
  nn::MultiheadAttention plain(8, 2, {.causal = true}), dropping(8, 2, {.causal = true, .dropout = 0.5});
  plain.initialize(1);
  dropping.initialize(1);
  const Variable x(testing::drawn({2, 5, 8}, DType::f32, Device::cpu(), "x"));
  EXPECT_EQ(values_of(dropping(x)), values_of(plain(x)));
  const auto trained = [&](std::int32_t first_id) {
    const Tensor ids = Tensor::from<std::int32_t>({first_id, 7}, {2}, Device::cpu());
    return values_of(dropping(x, {.training = true, .seed = 3, .sample_ids = ids}));
  };
  EXPECT_NE(trained(1), values_of(plain(x)));
  EXPECT_EQ(trained(1), trained(1));
  EXPECT_NE(trained(1), trained(2));
}

TEST(AttentionLayers, RefuseSizesThatTheyCannotCompute) {
  EXPECT_EQ(message_of<UsageError>([] { nn::MultiheadAttention(8, 3); }),
            "MultiheadAttention of width 8: found 3 heads, expected a positive divisor of the width");
  EXPECT_THAT(message_of<UsageError>([] { nn::TransformerEncoderLayer(8, 2, {.hidden = 0}); }),
              HasSubstr("Linear 8 -> 0"));
  nn::MultiheadAttention layer(8, 2);
  const Variable x(Tensor::zeros({2, 5, 6}, DType::f32, Device::cpu()));
  EXPECT_EQ(message_of<UsageError>([&] { layer(x); }),
            "MultiheadAttention 8, 2 heads: input [2, 5, 6], expected [N, T, 8]");
  EXPECT_THAT(message_of<UsageError>([&] {
                layer({x, x});
              }),
              HasSubstr("found 2 inputs, expected 1, or 3: query, key and value"));
}

TEST(TransformerEncoderLayer, DescribesItselfAndItsParts) {
  nn::TransformerEncoderLayer layer(8, 2, {.hidden = 32, .causal = true});
  EXPECT_EQ(layer.describe(), "TransformerEncoderLayer 8, 2 heads, hidden 32, causal");
  std::vector<nn::LayerSummary> rows;
  layer.infer({1, 5, 8}, &rows);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_EQ(rows[1].type, "MultiheadAttention 8, 2 heads, causal");
  EXPECT_EQ(rows[1].parameters, 4 * 8 * 8 + 4 * 8);
}

TEST(TransformerEncoderLayer, ComputesInTheTypeOfItsInput) {
  nn::TransformerEncoderLayer layer(8, 2, {.hidden = 16});
  layer.initialize(1);
  const Tensor x = testing::drawn({2, 5, 8}, DType::f32, Device::cpu(), "x");
  const Variable half = layer(Variable(x.to(DType::bf16)));
  EXPECT_EQ(half.dtype(), DType::bf16);
  const std::vector<float> expected = values_of(layer(Variable(x)));
  // A few operations in a row, each rounded to 8 bits.
  EXPECT_THAT(half.value().to(DType::f32).to_vector<float>(),
              Pointwise(::testing::FloatNear(0.1F), expected));
}

// Values of layers that are not trained: the fixed scale of batch norms, and buffers with a layout of
// filters.

struct NormResults {
  std::vector<double> y, dx, dbeta, running;
};

// Runs a batch norm forward and, in training, backward.
NormResults run(nn::BatchNorm2d& norm, const Variable& x, bool training, const nn::Epilogue& epilogue) {
  const auto values = [](const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); };
  const Variable y = norm(x, {.training = training}, epilogue);
  backward(sum(y * y * y));
  NormResults results{.y = values(y.value()), .dx = values(x.grad()), .dbeta = {}, .running = {}};
  for (const nn::NamedParameter& parameter : norm.parameters())
    if (parameter.name == "bias") results.dbeta = values(parameter.variable.grad());
  for (const Tensor& tensor : {norm.running().running_mean, norm.running().running_var})
    for (const double value : values(tensor)) results.running.push_back(value);
  return results;
}

TEST(FixedScale, HasTheBitsOfAScaleOfOne) {
  for (const DType dtype : {DType::f32, DType::f64})
    for (const bool training : {true, false})
      for (const bool relu : {true, false})
        for (const bool residual : {true, false}) {
          SCOPED_TRACE(
              fmt::format("{} training {} relu {} residual {}", to_string(dtype), training, relu, residual));
          NormResults results[2];
          for (const bool train_scale : {true, false}) {
            nn::BatchNorm2d norm(5, {.epsilon = 1e-12, .momentum = 0.4}, train_scale);
            norm.to(dtype);
            norm.initialize(1);
            for (const nn::NamedParameter& parameter : norm.parameters())
              if (parameter.name == "bias")
                parameter.variable.value().copy_from(testing::drawn({5}, dtype, Device::cpu(), "beta"));
            const Variable x(testing::drawn({3, 4, 4, 5}, dtype, Device::cpu(), "x"), true);
            const Variable other(testing::drawn({3, 4, 4, 5}, dtype, Device::cpu(), "residual"));
            results[train_scale ? 1 : 0] =
                run(norm, x, training,
                    {.residual = residual ? other : Variable(),
                     .activation = relu ? FusedActivation::relu : FusedActivation::none});
          }
          EXPECT_EQ(results[0].y, results[1].y);
          EXPECT_EQ(results[0].dx, results[1].dx);
          EXPECT_EQ(results[0].dbeta, results[1].dbeta);
          EXPECT_EQ(results[0].running, results[1].running);
        }
}

TEST(FixedScale, IsABuffer) {
  nn::BatchNorm2d norm(3, {}, /*train_scale=*/false);
  norm.initialize(1);
  ASSERT_EQ(norm.parameters().size(), 1u);
  EXPECT_EQ(norm.parameters()[0].name, "bias");
  std::vector<std::string> names;
  for (const nn::NamedBuffer& buffer : norm.buffers()) names.push_back(buffer.name);
  EXPECT_THAT(names, ElementsAre("weight", "running_mean", "running_var"));
  EXPECT_THAT(norm.buffers()[0].tensor.to_vector<float>(), ElementsAre(1, 1, 1));
  EXPECT_EQ(norm.describe(), "BatchNorm2d 3, scale 1");
}

// A convolution with fixed filters.
class FixedFilter final : public nn::Module {
 public:
  FixedFilter() : filter_(add_buffer("filter", {2, 2, 2, 3}, Init::uniform(1), nn::ParameterKind::filter)) {}

 private:
  Variable forward(const Variable& x, const nn::ForwardContext&) override {
    return conv2d(x, nn::for_input(Variable(*filter_), x), {});
  }
  std::shared_ptr<Tensor> filter_;
};

TEST(FilterBuffer, IsInitializedAndStoredLikeAFilter) {
  FixedFilter layer, other;
  const std::vector<float> values = layer.buffers()[0].tensor.to_vector<float>();
  layer.initialize(1);
  EXPECT_EQ(layer.buffers()[0].tensor.to_vector<float>(), values);  // seed 1 is the default
  other.initialize(2);
  EXPECT_NE(values, other.buffers()[0].tensor.to_vector<float>());
  const std::vector<io::NamedTensor> stored = io::state_dict(layer);
  ASSERT_EQ(stored.size(), 1u);
  EXPECT_EQ(stored[0].tensor.shape(), (Shape{2, 3, 2, 2}));  // [O, I, kH, kW]
  EXPECT_EQ(stored[0].tensor.to_vector<float>()[1], values[3]);
  io::load_state_dict(other, stored, "test");
  EXPECT_EQ(other.buffers()[0].tensor.to_vector<float>(), values);
}

TEST(FilterBuffer, HasNoGradient) {
  FixedFilter layer;
  layer.initialize(1);
  const Variable x(testing::drawn({1, 3, 3, 3}, DType::f32, Device::cpu(), "x"), true);
  backward(sum(layer(x)));
  EXPECT_TRUE(x.grad().defined());
  const Variable fixed(x.value());
  EXPECT_FALSE(layer(fixed).requires_grad());
}

TEST(Dirac, CopiesChannels) {
  nn::Conv2d layer(2, 3, {.kernel = 3, .padding = 1, .bias = false, .dirac = true});
  layer.initialize(1);
  const Tensor x = testing::drawn({1, 4, 4, 2}, DType::f32, Device::cpu(), "x");
  const std::vector<float> in = x.to_vector<float>(), out = layer(Variable(x)).value().to_vector<float>();
  for (std::size_t pixel = 0; pixel < 16; ++pixel)
    for (std::size_t channel = 0; channel < 2; ++channel)
      EXPECT_EQ(out[3 * pixel + channel], in[2 * pixel + channel]);
  EXPECT_EQ(message_of<UsageError>([] { nn::Conv2d(4, 4, {.groups = 2, .dirac = true}); }),
            "Conv2d 4 -> 4: found dirac with 2 groups, expected 1 group");
}

// Hooks of modules.

using Inputs = std::span<const Variable>;
using Outputs = std::span<Variable>;

// A layer whose kernel computes relu(2 x).
class Doubling : public nn::Module {
 public:
  int fused_calls = 0;
  bool fuses(const nn::Epilogue& epilogue) const override {
    return epilogue.is_at_most(FusedActivation::relu);
  }
  std::string describe() const override { return "Doubling"; }

 private:
  Variable forward_with(const Variable& x, const nn::ForwardContext&, const nn::Epilogue& epilogue) override {
    if (!epilogue.is_empty()) ++fused_calls;
    return epilogue.apply(2 * x);
  }
};

Variable row(const std::vector<float>& values, bool requires_grad = false) {
  return Variable(Tensor::from(values, {1, static_cast<std::int64_t>(values.size())}, Device::cpu()),
                  requires_grad);
}

TEST(ForwardHook, SeesWhatAModuleAloneComputes) {
  const auto layer = std::make_shared<Doubling>();
  const auto relu = std::make_shared<nn::Activation>(nn::ActivationKind::relu);
  nn::Sequential net({{"double", layer}, {"relu", relu}});
  std::vector<std::vector<float>> seen;
  const auto see = [&](const nn::Module&, Inputs, Outputs outputs) { seen.push_back(values_of(outputs[0])); };
  const Variable x = row({-1, 0, 3});
  {
    const nn::HookHandle of_layer = layer->add_forward_hook(see);
    EXPECT_THAT(values_of(net(x)), ElementsAre(0, 0, 6));
    const nn::HookHandle of_relu = relu->add_forward_hook(see);
    EXPECT_THAT(values_of(net(x)), ElementsAre(0, 0, 6));
    EXPECT_THAT(seen, ElementsAre(ElementsAre(-2, 0, 6), ElementsAre(-2, 0, 6), ElementsAre(0, 0, 6)));
    EXPECT_EQ(layer->fused_calls, 0);
  }
  net(x);  // the handles are destroyed, and the hooks removed
  EXPECT_EQ(seen.size(), 3u);
  EXPECT_EQ(layer->fused_calls, 1);
}

TEST(ForwardHook, RunsBeforeTheResidualIsAdded) {
  const auto norm = std::make_shared<nn::BatchNorm2d>(3);
  nn::ResidualBlock block({{"norm", norm}}, nullptr);
  block.initialize(1);
  const Variable x(Tensor::full({1, 2, 2, 3}, 2, DType::f32, Device::cpu()));
  const std::vector<float> expected = values_of(block(x));
  float seen = 0;
  const nn::HookHandle hook = norm->add_forward_hook(
      [&](const nn::Module&, Inputs, Outputs outputs) { seen = values_of(outputs[0])[0]; });
  EXPECT_EQ(values_of(block(x)), expected);
  EXPECT_NEAR(seen, 2, 1e-4);
  EXPECT_NEAR(expected[0], 4, 1e-4);
}

TEST(ForwardHook, MayReplaceTheOutput) {
  nn::Sequential net({{"double", std::make_shared<Doubling>()}});
  const auto hook = net.add_forward_hook([&](const nn::Module& module, Inputs inputs, Outputs outputs) {
    EXPECT_EQ(module.describe(), "Sequential of 1");
    EXPECT_THAT(values_of(inputs[0]), ElementsAre(1, 2));
    outputs[0] = 3 * outputs[0];
  });
  const Variable x = row({1, 2}, true);
  const Variable y = net(x);
  EXPECT_THAT(values_of(y), ElementsAre(6, 12));
  backward(sum(5 * y + y, {0, 1}));
  EXPECT_THAT(x.grad().to_vector<float>(), ElementsAre(36, 36));
}

TEST(ForwardHook, IsRemovedByItsHandleWhichMayOutliveTheModule) {
  int calls = 0;
  const auto count = [&](const nn::Module&, Inputs, Outputs) { ++calls; };
  const Variable x = row({1, 2});
  nn::HookHandle handle;
  {
    Doubling layer;
    handle = layer.add_forward_hook(count);
    nn::HookHandle moved = std::move(handle);
    layer(x);
    EXPECT_EQ(calls, 1);
    moved.remove();
    moved.remove();
    EXPECT_FALSE(layer.has_forward_hooks());
    layer(x);
    EXPECT_EQ(calls, 1);
    nn::HookHandle own;
    own = layer.add_forward_hook([&](const nn::Module&, Inputs, Outputs) { own.remove(); });
    layer(x);
    EXPECT_FALSE(layer.has_forward_hooks());
    handle = layer.add_forward_hook(count);
  }
  handle.remove();
}

TEST(ForwardHook, RunsForListsOfInputs) {
  Doubling layer;
  std::size_t inputs_seen = 0;
  const auto hook = layer.add_forward_hook([&](const nn::Module&, Inputs inputs, Outputs outputs) {
    inputs_seen = inputs.size();
    outputs[0] = -outputs[0];
  });
  EXPECT_THAT(values_of(layer(nn::Variables{row({1, 2})}).front()), ElementsAre(-2, -4));
  EXPECT_EQ(inputs_seen, 1u);
}

}  // namespace

}  // namespace convoy
