#include "convoy/engine/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy {
namespace {

using Values = std::vector<double>;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

nn::NamedParameter parameter(const std::string& name, const Values& values) {
  const Shape shape{static_cast<std::int64_t>(values.size())};
  return {name, Variable(Tensor::from(values, shape, Device::cpu()), true)};
}

/// Sets the parameter's gradient by a backward of its inner product with `gradient`, starting from `seed` if
/// defined.
void give_gradient(const nn::NamedParameter& parameter, const Values& gradient, const Tensor& seed = {}) {
  const Variable factor(Tensor::from(gradient, parameter.variable.shape(), Device::cpu()));
  backward(sum(parameter.variable * factor), {.seed = seed});
}

Values values_of(const Tensor& tensor) { return tensor.to_vector<double>(); }

optim::LossScaler make_scaler(const optim::LossScaleSettings& settings = {}) {
  return optim::LossScaler(Device::cpu(), DType::f64, settings);
}

std::unique_ptr<optim::Optimizer> make(const std::string& name,
                                       const std::vector<nn::NamedParameter>& parameters) {
  return testing::make_optimizer(name, optim::decay_groups(parameters, 0.01));
}

class ScaledStep : public ::testing::TestWithParam<const char*> {};

// Scales are powers of two, so dividing by the scale restores gradients and norms exactly.
TEST_P(ScaledStep, EqualsTheUnscaledStep) {
  for (const std::optional<double> clip : {std::optional<double>(), std::optional(0.25)}) {
    const nn::NamedParameter plain = parameter("p", {1, -2, 3}), scaled = parameter("p", {1, -2, 3});
    const auto one = make(GetParam(), {plain}), other = make(GetParam(), {scaled});
    optim::LossScaler scaler = make_scaler({.initial = 1024, .options = {.interval = 2}});
    for (int step = 0; step < 3; ++step) {
      give_gradient(plain, {0.3, -0.1, 0.7});
      give_gradient(scaled, {0.3, -0.1, 0.7}, scaler.seed());
      one->step(0.1, {.clip_norm = clip});
      other->step(0.1, {.clip_norm = clip, .scaler = &scaler});
      EXPECT_EQ(values_of(scaled.variable.value()), values_of(plain.variable.value())) << "step " << step;
    }
    EXPECT_EQ(scaler.read().scale, 2048);
    EXPECT_EQ(scaler.read().good_steps, 1);
    EXPECT_EQ(scaler.read().skipped, 0);
  }
}

TEST_P(ScaledStep, IsSkippedAfterAnOverflow) {
  for (const double poison : {kInfinity, -kInfinity, std::nan("")}) {
    const nn::NamedParameter a = parameter("a", {1, -2, 3}), b = parameter("b", {4});
    const auto optimizer = make(GetParam(), {a, b});
    optim::LossScaler scaler = make_scaler();
    give_gradient(a, {1, 2, 3}, scaler.seed());
    give_gradient(b, {1}, scaler.seed());
    optimizer->step(0.1, {.scaler = &scaler});
    const auto all_values = [&] {
      std::vector<Values> all{values_of(a.variable.value()), values_of(b.variable.value())};
      for (const optim::NamedState& state : optimizer->state()) all.push_back(values_of(state.tensor));
      return all;
    };
    const std::vector<Values> before = all_values();

    give_gradient(a, {1, poison, 3}, scaler.seed());
    give_gradient(b, {1}, scaler.seed());
    optimizer->step(0.1, {.clip_norm = 1.0, .scaler = &scaler});
    EXPECT_EQ(all_values(), before);
    EXPECT_EQ(optimizer->steps(), 1);
    EXPECT_FALSE(b.variable.has_new_grad()) << "skipped, but consumed";
    const optim::LossScaler::State state = scaler.read();
    EXPECT_EQ(state.scale, 32768);
    EXPECT_EQ(state.good_steps, 0);
    EXPECT_EQ(state.skipped, 1);
    EXPECT_FALSE(state.failed);

    give_gradient(a, {1, 2, 3}, scaler.seed());
    optimizer->step(0.1, {.scaler = &scaler});
    EXPECT_EQ(optimizer->steps(), 2);
    EXPECT_NE(all_values(), before);
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ScaledStep, ::testing::Values("sgd", "adam", "adamw"),
                         [](const auto& test) { return std::string(test.param); });

TEST(LossScaler, SeedKeepsItsMemory) {
  const nn::NamedParameter p = parameter("p", {1});
  const auto optimizer = make("sgd", {p});
  optim::LossScaler scaler = make_scaler({.initial = 8});
  const void* const address = scaler.seed().view().data;
  give_gradient(p, {kInfinity}, scaler.seed());
  optimizer->step(0.1, {.scaler = &scaler});
  EXPECT_EQ(scaler.seed().view().data, address);
  EXPECT_EQ(scaler.seed().item(), 4);
}

TEST(LossScaler, FailsIfTheMinimumScaleOverflows) {
  const nn::NamedParameter p = parameter("p", {1});
  const auto optimizer = make("sgd", {p});
  optim::LossScaler moving = make_scaler({.initial = 2, .options = {.minimum = 1}});
  optim::LossScaler fixed = make_scaler(optim::LossScaleSettings::fixed(128));
  const auto overflow = [&](optim::LossScaler& scaler) {
    give_gradient(p, {kInfinity}, scaler.seed());
    optimizer->step(0.1, {.scaler = &scaler});
    return scaler.read();
  };
  EXPECT_FALSE(overflow(moving).failed);
  EXPECT_TRUE(overflow(moving).failed);
  EXPECT_TRUE(overflow(fixed).failed);
  EXPECT_EQ(fixed.read().scale, 128);
  EXPECT_EQ(optimizer->steps(), 0);
}

TEST(LossScaler, RestoresItsState) {
  const optim::LossScaler scaler(Device::cpu(), DType::f32);
  scaler.restore({.scale = 512, .good_steps = 1999, .skipped = 3, .failed = true});
  optim::LossScaler::State state = scaler.read();
  EXPECT_EQ(state.scale, 512);
  EXPECT_EQ(state.good_steps, 1999);
  EXPECT_EQ(state.skipped, 3);
  EXPECT_TRUE(state.failed);
  EXPECT_EQ(scaler.find_non_finite({}).view().as<std::int32_t>()[0], 0);
  scaler.update();
  state = scaler.read();
  EXPECT_EQ(state.scale, 1024) << "grows after the 2000th good step";
  EXPECT_EQ(state.good_steps, 0);
  EXPECT_THROW(scaler.restore({.scale = 0}), UsageError);
  EXPECT_THROW(scaler.restore({.scale = kInfinity}), UsageError);
  EXPECT_THROW(scaler.restore({.scale = 1, .good_steps = -1}), UsageError);
  const optim::LossScaler fixed(Device::cpu(), DType::f32, optim::LossScaleSettings::fixed(128));
  fixed.restore({.scale = 512});
  EXPECT_EQ(fixed.read().scale, 128) << "a run that resumes with a fixed scale";
}

TEST(LossScaler, RejectsInvalidSettings) {
  const auto expect_error = [](const optim::LossScaleSettings& settings) {
    EXPECT_THROW(make_scaler(settings), UsageError);
  };
  expect_error({.initial = 0});
  expect_error({.initial = std::nan("")});
  expect_error({.initial = 0.5});  // below the minimum
  expect_error({.initial = 0x1p25});
  expect_error({.options = {.growth = 0.5}});
  expect_error({.options = {.backoff = 0}});
  expect_error({.options = {.backoff = 2}});
  expect_error({.options = {.interval = 0}});
  expect_error({.options = {.minimum = 0}});
  expect_error({.options = {.maximum = kInfinity}});
  EXPECT_THROW(optim::LossScaler(Device::cpu(), DType::f16), UsageError);
  EXPECT_THROW(optim::LossScaler(Device::cpu(), DType::i32), UsageError);
}

TEST(FirstNonFinite, NamesTheFirstLayerInOrder) {
  const std::vector<nn::NamedParameter> all{parameter("conv.weight", {1, 2}), parameter("fc.weight", {3}),
                                            parameter("fc.bias", {4})};
  EXPECT_EQ(optim::first_non_finite(all), "");  // no gradients yet
  give_gradient(all[0], {1, 1});
  give_gradient(all[2], {std::nan("")});
  EXPECT_EQ(optim::first_non_finite(all), "fc.bias");
  give_gradient(all[1], {-kInfinity});
  EXPECT_EQ(optim::first_non_finite(all), "fc.weight");
  for (const nn::NamedParameter& parameter : all) parameter.variable.consume_grad();
  EXPECT_EQ(optim::first_non_finite(all), "fc.weight") << "also after the step";
  EXPECT_EQ(optim::first_non_finite({}), "");
}

}  // namespace
}  // namespace convoy
