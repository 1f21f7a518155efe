// Tests of WeightAverage, as EMA and as Lookahead.
#include "convoy/engine/optim/weight_average.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/reference.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::message_of;
using testing::Reference;
using testing::TinyTraining;

using Values = std::vector<double>;

constexpr double kEpsilon = std::numeric_limits<double>::epsilon();

/// A batch norm in f64, whose scale and running variance are set by the tests.
struct Weights {
  Weights() { model.to(DType::f64); }
  Tensor scale() { return model.parameters()[0].variable.value(); }
  Tensor running_var() { return model.running().running_var; }
  /// Sets the scale to `values` and the running variance to twice the values.
  void set(const Values& values) {
    Values twice;
    for (const double value : values) twice.push_back(2 * value);
    scale().copy_from(Tensor::from(values, {3}, Device::cpu()));
    running_var().copy_from(Tensor::from(twice, {3}, Device::cpu()));
  }
  nn::BatchNorm2d model{3};
};

void expect_near(const Tensor& found, const Values& expected) {
  const Values values = found.to_vector<double>();
  ASSERT_EQ(values.size(), expected.size());
  for (std::size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(values[i], expected[i], 10 * kEpsilon * 4)
        << i;  // three roundings per update, of values below 4
}

const std::vector<Values> kSteps = {{0.5, -1, 0.25}, {-0.75, 2, 0.125}, {1.5, 0.5, -3}};

// tests/reference/weight_average.py computes the expected values with PyTorch's AveragedModel.
TEST(WeightAverage, UpdatesAsTheEmaOfPyTorch) {
  Weights weights;
  weights.set({1, -2, 3});
  optim::WeightAverage average(weights.model);
  for (const Values& values : kSteps) {
    weights.set(values);
    average.update(1 - 0.9);
  }
  expect_near(weights.scale(), kSteps.back());
  average.swap();
  const Reference reference("weight_average.safetensors");
  expect_near(weights.scale(), reference.at("ema/scale").to_vector<double>());
  expect_near(weights.running_var(), reference.at("ema/running_var").to_vector<double>());
  average.swap();
  expect_near(weights.scale(), kSteps.back());
}

// Four steps of SGD, of which every second one moves the slow weights by half of the difference
// (tests/reference/weight_average.py).
TEST(WeightAverage, UpdatesAsLookahead) {
  Weights weights;
  Values fast = {1, -2, 3};
  weights.set(fast);
  optim::WeightAverage average(weights.model);
  const std::vector<Values> gradients = {{0.5, -1, 0.25}, {-0.75, 2, 0.125}, {1.5, 0.5, -3}, {0.25, 0.5, 1}};
  for (std::size_t step = 0; step < gradients.size(); ++step) {
    for (std::size_t i = 0; i < fast.size(); ++i) fast[i] -= 0.1 * gradients[step][i];
    weights.set(fast);
    if (step % 2 == 0) continue;
    average.update(0.5);
    average.write_back();
    fast = weights.scale().to_vector<double>();
  }
  expect_near(weights.scale(), Reference("weight_average.safetensors").at("lookahead").to_vector<double>());
}

TEST(WeightAverage, DecayGrowsToItsLimit) {
  EXPECT_DOUBLE_EQ(optim::ema_decay(0.999, 1), 2.0 / 11);
  EXPECT_DOUBLE_EQ(optim::ema_decay(0.999, 90), 0.91);
  EXPECT_DOUBLE_EQ(optim::ema_decay(0.9, 90), 0.9);
}

TEST(WeightAverage, FollowsATrainingAndRefreshesLowPrecisionCopies) {
  const TinyTraining training;
  training.net->keep_low_precision_copies(DType::bf16);
  optim::WeightAverage average(*training.net);
  const auto conv = [&] { return training.net->parameters()[0].variable; };
  const auto value = [&] { return conv().value().to_vector<float>(); };
  const std::vector<float> before = value();
  training.step(1);
  const std::vector<float> after = value();
  ASSERT_NE(after, before);
  average.update(0.25);
  average.swap();
  const std::vector<float> found = value();
  for (std::size_t i = 0; i < found.size(); ++i)
    EXPECT_NEAR(found[i], 0.75 * before[i] + 0.25 * after[i], 4 * std::numeric_limits<float>::epsilon()) << i;
  const auto expect_copy = [&] {
    EXPECT_EQ(conv().low_precision_copy().to(DType::f32).to_vector<float>(),
              conv().value().to(DType::bf16).to(DType::f32).to_vector<float>());
  };
  expect_copy();
  average.swap();
  EXPECT_EQ(value(), after);
  expect_copy();
  average.write_back();
  EXPECT_EQ(value(), found);
  expect_copy();
  average.reset();
  average.swap();
  EXPECT_EQ(value(), found);
}

TEST(WeightAverage, NamesParametersAndBuffers) {
  Weights weights;
  weights.set({1, 2, 3});
  const optim::WeightAverage average(weights.model);
  std::vector<std::string> names;
  for (const optim::NamedState& state : average.state("slow")) names.push_back(state.name);
  EXPECT_THAT(names, ElementsAre("slow/weight", "slow/bias", "slow/running_mean", "slow/running_var"));
}

TEST(WeightAverage, RefusesInvalidWeightsAndTypes) {
  Weights weights;
  optim::WeightAverage average(weights.model);
  for (const double weight : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_THROW(average.update(weight), UsageError) << weight;
  weights.model.to(DType::bf16);
  EXPECT_THAT(message_of<UsageError>([&] { const optim::WeightAverage half(weights.model); }),
              HasSubstr("is bf16, expected f32 or f64"));
}

}  // namespace
}  // namespace convoy
