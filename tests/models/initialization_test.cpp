// Tests that initial weights have the distributions of PyTorch's defaults. The random numbers differ from
// PyTorch's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "convoy/models/models.h"

namespace convoy {
namespace {

std::vector<float> weights(const models::Model& model, const std::string& name) {
  for (const nn::NamedParameter& parameter : model.parameters()) {
    if (parameter.name == name) return parameter.variable.value().to_vector<float>();
  }
  ADD_FAILURE() << model.name() << " has no " << name;
  return {};
}

struct Moments {
  double mean = 0, variance = 0, kurtosis = 0, max_abs = 0;
};

Moments moments_of(const std::vector<float>& values) {
  const auto n = static_cast<double>(values.size());
  Moments m;
  for (const double v : values) {
    m.mean += v / n;
    m.max_abs = std::max(m.max_abs, std::abs(v));
  }
  double fourth = 0;
  for (const double v : values) {
    const double square = (v - m.mean) * (v - m.mean);
    m.variance += square / n;
    fourth += square * square / n;
  }
  m.kurtosis = fourth / (m.variance * m.variance);
  return m;
}

// Expects a mean of 0, the given variance and the given kurtosis. For n samples, the standard error of the
// mean is sigma / sqrt(n), that of the variance is variance sqrt((kurtosis - 1) / n), and that of the
// kurtosis is at most sqrt(24 / n). The bounds are five standard errors, so that a correct generator fails
// for one in millions of seeds.
void expect_distribution(const std::vector<float>& values, double variance, double kurtosis) {
  const auto n = static_cast<double>(values.size());
  const Moments m = moments_of(values);
  EXPECT_NEAR(m.mean, 0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(m.variance, variance, 5 * variance * std::sqrt((kurtosis - 1) / n));
  EXPECT_NEAR(m.kurtosis, kurtosis, 5 * std::sqrt(24 / n));
}

// Expects the uniform distribution U(-1/sqrt(fan_in), 1/sqrt(fan_in)).
void expect_uniform(const std::vector<float>& values, double fan_in) {
  const double bound = 1 / std::sqrt(fan_in);
  expect_distribution(values, bound * bound / 3, 1.8);
  EXPECT_LE(moments_of(values).max_abs, bound);
}

TEST(Initialization, ConvolutionsAndLinearsAreUniformByFanIn) {
  const models::Model model = models::lenet();
  expect_uniform(weights(model, "conv2.weight"), 6 * 25);
  expect_uniform(weights(model, "fc1.weight"), 400);
  expect_uniform(weights(model, "fc1.bias"), 400);  // by the fan-in of the weights
  expect_uniform(weights(model, "fc2.weight"), 120);
}

TEST(Initialization, ConvolutionsOfResNetsAreNormalByFanOut) {
  const models::Model model = models::resnet18();
  expect_distribution(weights(model, "layer1.0.conv1.weight"), 2.0 / (9 * 64), 3);
  expect_distribution(weights(model, "layer2.0.conv1.weight"), 2.0 / (9 * 128), 3);  // fan-in would be 9 x 64
  expect_distribution(weights(model, "layer2.0.downsample.0.weight"), 2.0 / 128, 3);
  expect_uniform(weights(model, "fc.weight"), 512);
}

TEST(Initialization, BatchNormsAreInitializedToTheIdentity) {
  const models::Model model = models::resnet20();
  for (const float scale : weights(model, "layer3.2.bn2.weight")) EXPECT_EQ(scale, 1);
  for (const float shift : weights(model, "layer3.2.bn2.bias")) EXPECT_EQ(shift, 0);
  for (const nn::NamedBuffer& buffer : model.buffers()) {
    const float expected = buffer.name.ends_with("running_var") ? 1 : 0;
    for (const float value : buffer.tensor.to_vector<float>()) EXPECT_EQ(value, expected) << buffer.name;
  }
}

TEST(Initialization, DependsOnlyOnSeedAndName) {
  const std::string name = "layer1.0.conv1.weight", other = "layer1.1.conv1.weight";  // of equal shape
  const models::Model model = models::resnet20({.seed = 5});
  EXPECT_EQ(weights(model, name), weights(models::resnet20({.seed = 5}), name));
  EXPECT_NE(weights(model, name), weights(models::resnet20({.seed = 6}), name));
  EXPECT_NE(weights(model, name), weights(model, other));
  // An equal layer of a model with other options has equal weights.
  EXPECT_EQ(weights(model, name),
            weights(models::resnet20({.input = {16, 16, 3}, .classes = 3, .seed = 5}), name));
}

}  // namespace
}  // namespace convoy
