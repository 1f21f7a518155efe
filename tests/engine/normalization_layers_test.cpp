// Tests of nn::LayerNorm and nn::GroupNorm, and of frozen statistics of nn::BatchNorm2d.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/op_cases/op_case.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
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

}  // namespace
}  // namespace convoy
