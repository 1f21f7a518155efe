#include "engine/nn/module.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/ops/ops.h"
#include "kernels/base/check.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<Sequential> small_net() {
  return std::make_shared<Sequential>(std::vector<Sequential::Named>{
      {"conv", std::make_shared<Conv2d>(3, 8, Conv2dLayerOptions{.kernel = 3, .padding = 1, .bias = false})},
      {"bn", std::make_shared<BatchNorm2d>(8)},
      {"relu", std::make_shared<Activation>(ActivationKind::relu)},
      {"pool", std::make_shared<MaxPool2d>(Pool2dOptions{})},
      {"flatten", std::make_shared<Flatten>()},
      {"fc", std::make_shared<Linear>(8 * 4 * 4, 10)}});
}

template <class Named>
std::vector<std::string> names_of(const std::vector<Named>& all) {
  std::vector<std::string> names;
  for (const Named& one : all) names.push_back(one.name);
  return names;
}

TEST(Module, NamesParametersAndBuffersByPath) {
  const auto net = small_net();
  EXPECT_THAT(names_of(net->parameters()),
              ElementsAre("conv.weight", "bn.weight", "bn.bias", "fc.weight", "fc.bias"));
  EXPECT_THAT(names_of(net->buffers()), ElementsAre("bn.running_mean", "bn.running_var"));
}

TEST(Module, InfersEveryLayersShape) {
  std::vector<LayerSummary> rows;
  EXPECT_EQ(small_net()->infer({1, 8, 8, 3}, "", &rows), (Shape{1, 10}));
  ASSERT_EQ(rows.size(), 6u);
  EXPECT_EQ(rows[0].name, "conv");
  EXPECT_EQ(rows[0].output, (Shape{1, 8, 8, 8}));
  EXPECT_EQ(rows[0].parameters, 8 * 3 * 9);
  EXPECT_EQ(rows[0].flops, 2 * 8 * 8 * 8 * 9 * 3);
  EXPECT_EQ(rows[3].output, (Shape{1, 4, 4, 8}));
  EXPECT_EQ(rows[5].flops, 2 * 128 * 10);
}

TEST(Module, ShapeErrorNamesTheLayer) {
  const auto message = [](const Shape& input) -> std::string {
    try {
      small_net()->infer(input);
    } catch (const UsageError& error) {
      return error.what();
    }
    return "no error";
  };
  EXPECT_EQ(message({1, 8, 8, 1}),
            "conv (Conv2d 3 -> 8, 3x3 padding 1): input [1, 8, 8, 1] has 1 channels, expected 3");
  EXPECT_EQ(message({1, 10, 8, 3}), "fc (Linear 128 -> 10): input [1, 160], expected [N, 128]");
  EXPECT_THAT(message({1, 1, 8, 3}), HasSubstr("pool (MaxPool2d 2x2 stride 2): a window of 2 does not fit"));
  const ResidualBlock block({{"conv", std::make_shared<Conv2d>(4, 8, Conv2dLayerOptions{.padding = 1})}},
                            nullptr);
  try {
    block.infer({1, 6, 6, 4}, "layer1.0");
    FAIL();
  } catch (const UsageError& error) {
    EXPECT_STREQ(
        error.what(),
        "layer1.0 (ResidualBlock of 1): the body returns shape [1, 6, 6, 8], the shortcut [1, 6, 6, 4]; "
        "expected equal shapes");
  }
}

TEST(Module, ForwardReturnsTheInferredShape) {
  const auto net = small_net();
  net->initialize(1);
  const Variable images(Tensor::full({2, 8, 8, 3}, 0.5, DType::f32, Device::cpu()));
  EXPECT_EQ(net->forward(images, ForwardContext::inference()).shape(), (Shape{2, 10}));
}

// A fused epilogue gives the same bits as the layer followed by the epilogue.
TEST(Module, FusedEpilogueEqualsSeparateOperations) {
  const auto with = [](std::vector<Sequential::Named> layers) {
    return std::make_shared<Sequential>(std::move(layers));
  };
  const auto relu = [] { return std::make_shared<Activation>(ActivationKind::relu); };
  const auto norm = [](bool own_relu) {
    return std::make_shared<BatchNorm2d>(5, BatchNormOptions{.relu = own_relu});
  };
  const std::shared_ptr<Module> images[] = {
      norm(false),
      norm(true),
      std::make_shared<Conv2d>(5, 5, Conv2dLayerOptions{.padding = 1}),
      std::make_shared<Conv2d>(5, 5, Conv2dLayerOptions{.padding = 1, .bias = false}),
      relu(),
      with({}),
      with({{"0", norm(false)}}),
      with({{"0", norm(false)}, {"1", relu()}}),
      with({{"0", relu()}, {"1", relu()}, {"2", norm(true)}}),
      std::make_shared<ResidualBlock>(std::vector<Sequential::Named>{{"0", norm(false)}}, nullptr)};
  const std::shared_ptr<Module> rows[] = {std::make_shared<Linear>(5, 5),
                                          std::make_shared<Linear>(5, 5, false)};
  const auto compare = [](Module& module, const Shape& shape) {
    module.initialize(3);
    std::vector<float> values[2];
    for (std::int64_t i = 0; i < shape.numel(); ++i) {
      values[0].push_back(static_cast<float>(i * 7919 % 101 - 50) / 32);
      values[1].push_back(static_cast<float>(i * 7907 % 103 - 51) / 32);
    }
    const Variable x(Tensor::from(values[0], shape, Device::cpu()));
    const Variable residual(Tensor::from(values[1], shape, Device::cpu()));
    for (const bool relu_after : {false, true})
      for (const Variable& sum : {Variable(), residual}) {
        SCOPED_TRACE(fmt::format("{}, residual {}, relu {}", module.describe(), sum.defined(), relu_after));
        const Epilogue epilogue{.residual = sum, .relu = relu_after};
        const ForwardContext context{.training = true};
        EXPECT_EQ(module.forward_with(x, context, epilogue).value().to_vector<float>(),
                  epilogue.apply(module.forward(x, context)).value().to_vector<float>());
      }
  };
  for (const auto& module : images) compare(*module, {3, 2, 2, 5});
  for (const auto& module : rows) compare(*module, {6, 5});
}

TEST(Module, InitializationDependsOnlyOnSeedAndName) {
  const auto a = small_net(), b = small_net();
  a->initialize(1);
  b->initialize(1);
  for (std::size_t i = 0; i < a->parameters().size(); ++i)
    EXPECT_EQ(a->parameters()[i].variable.value().to_vector<float>(),
              b->parameters()[i].variable.value().to_vector<float>());
  b->initialize(2);
  EXPECT_NE(a->parameters()[0].variable.value().to_vector<float>(),
            b->parameters()[0].variable.value().to_vector<float>());
  // U(-bound, bound): within the bound, close to it, and with variance bound^2 / 3.
  const double bound = 1 / std::sqrt(128.0);
  double square = 0, largest = 0;
  const auto weights = a->parameters()[3].variable.value().to_vector<float>();
  for (const double w : weights) square += w * w, largest = std::max(largest, std::abs(w));
  EXPECT_LE(largest, bound);
  EXPECT_GT(largest, 0.98 * bound);
  EXPECT_NEAR(square / static_cast<double>(weights.size()), bound * bound / 3, 0.1 * bound * bound / 3);
}

TEST(Module, KaimingInitializationHasTheRightVariance) {
  Conv2d conv(16, 64, {.bias = false, .kaiming_fan_out = true});
  conv.initialize(7);
  double square = 0, fourth = 0;
  const auto weights = conv.parameters()[0].variable.value().to_vector<float>();
  for (const double w : weights) square += w * w, fourth += w * w * w * w;
  // 9,216 draws: the standard error of the variance is about 1.5 %.
  const auto n = static_cast<double>(weights.size());
  EXPECT_NEAR(square / n, 2.0 / (9 * 64), 0.06 * 2.0 / (9 * 64));
  EXPECT_NEAR(fourth / n / std::pow(square / n, 2), 3, 0.3);  // the kurtosis of a normal distribution
}

TEST(Module, ConvertsToDoubleAndBackWithTheSameVariables) {
  const auto net = small_net();
  net->initialize(1);
  const std::vector<NamedParameter> before = net->parameters();
  const auto values = before[0].variable.value().to_vector<float>();
  net->to(DType::f64);
  EXPECT_EQ(before[0].variable.value().dtype(), DType::f64);
  EXPECT_EQ(net->buffers()[0].tensor.dtype(), DType::f64);
  net->to(DType::f32);
  EXPECT_EQ(before[0].variable.value().to_vector<float>(), values);
  const DeviceContext other = DeviceContext::create_cpu({.threads = 1});
  net->to(other);
  EXPECT_TRUE(before[0].variable.context() == other);
  EXPECT_THROW(net->to(DType::i32), UsageError);
}

TEST(Module, DropoutActsOnlyInTrainingAndVariesByEpoch) {
  Dropout dropout(0.5, 3);
  const DeviceContext device = Device::cpu();
  const Variable x(Tensor::full({4, 64}, 1, DType::f32, device));
  EXPECT_EQ(dropout.forward(x, ForwardContext::inference()), x);
  ForwardContext context{.training = true,
                         .seed = 1,
                         .epoch = 0,
                         .sample_ids = Tensor::from(std::vector<std::int32_t>{5, 6, 7, 8}, {4}, device)};
  const auto first = dropout.forward(x, context).value().to_vector<float>();
  EXPECT_EQ(dropout.forward(x, context).value().to_vector<float>(), first);
  context.epoch = 1;
  EXPECT_NE(dropout.forward(x, context).value().to_vector<float>(), first);
}

TEST(Module, DropoutReadsTheEpochFromDeviceMemory) {
  Dropout dropout(0.5, 3);
  const DeviceContext device = Device::cpu();
  ForwardContext context{.training = true,
                         .seed = 1,
                         .epoch = 9,
                         .sample_ids = Tensor::from(std::vector<std::int32_t>{5, 6, 7, 8}, {4}, device)};
  const auto output_and_gradient = [&] {
    const Variable x(Tensor::full({4, 64}, 1, DType::f32, device), true);
    const Variable y = dropout.forward(x, context);
    context.device_epoch = {};  // the operation keeps its own reference for backward
    backward(sum(y));
    return std::pair(y.value().to_vector<float>(), x.grad().to_vector<float>());
  };
  const auto expected = output_and_gradient();
  context.epoch = 0;
  EXPECT_NE(output_and_gradient(), expected);
  context.device_epoch = Tensor::full({1}, 9, DType::i32, device);
  EXPECT_EQ(output_and_gradient(), expected);
  context.device_epoch = Tensor::full({1}, 9, DType::f32, device);
  EXPECT_THROW(output_and_gradient(), UsageError);
}

}  // namespace
}  // namespace convoy
