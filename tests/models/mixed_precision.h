// Comparison of training steps in mixed precision (f16 or bf16 activations, f32 parameters) with the same
// step in f32 on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <ostream>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/models/models.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy::testing {

using Values = std::vector<double>;

inline Values values_of(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

inline void append(Values& all, const Tensor& tensor) {
  const Values values = values_of(tensor);
  all.insert(all.end(), values.begin(), values.end());
}

inline constexpr double kLearningRate = 0.01;

/// Returns a network of all layers that no model uses.
inline std::shared_ptr<nn::Sequential> other_layers() {
  const auto activation = [](nn::ActivationKind kind) { return std::make_shared<nn::Activation>(kind); };
  return std::make_shared<nn::Sequential>(std::vector<nn::Layer>{
      {"conv", std::make_shared<nn::Conv2d>(3, 8, nn::Conv2dLayerOptions{.kernel = 3, .padding = 1})},
      {"gelu", activation(nn::ActivationKind::gelu)},
      {"pool", std::make_shared<nn::AvgPool2d>(Pool2dOptions{})},
      {"flatten", std::make_shared<nn::Flatten>()},
      {"dropout", std::make_shared<nn::Dropout>(0.25)},
      {"fc1", std::make_shared<nn::Linear>(8 * 4 * 4, 16)},
      {"silu", activation(nn::ActivationKind::silu)},
      {"fc2", std::make_shared<nn::Linear>(16, 16)},
      {"tanh", activation(nn::ActivationKind::tanh)},
      {"fc3", std::make_shared<nn::Linear>(16, 16, false)},
      {"sigmoid", activation(nn::ActivationKind::sigmoid)},
      {"fc4", std::make_shared<nn::Linear>(16, 10)}});
}

/// A model, its input, and the numbers from which the error bounds are derived.
struct Scene {
  const char* model;
  Shape input;  // small: an emulated GPU is slow
  std::int64_t batch;
  const char* optimizer;
  int roundings;  // operations that round their results, from the images to the logits
  int kinks;      // ReLUs and max-pools among them; a pool that follows no ReLU counts as two, because two
                  // values of its window are close more often than one value is close to 0
  DType half;

  /// Returns the maximum relative error of one rounding to the half-precision type.
  double roundoff() const { return half == DType::f16 ? 0x1p-11 : 0x1p-8; }
  /// Returns the relative error of the logits. Every operation rounds its weights and its result. The errors
  /// are independent, so their squares add up.
  double forward_error() const { return std::sqrt(2.0 * roundings) * roundoff(); }
  /// Returns the squared relative error of a gradient. The backward pass rounds as often as the forward pass
  /// and uses its inexact activations. Together this gives at most three errors of the size of the forward
  /// error. In addition, an activation with relative error e is on the wrong side of a kink with probability
  /// 0.8 e (the density of the standard normal distribution at 0 is 0.4, on both sides). Its whole gradient
  /// is then wrong.
  double squared_gradient_error() const {
    const double e = forward_error();
    return 9 * e * e + 0.8 * kinks * e;
  }
};

/// Prints the name of the test parameter.
inline void PrintTo(const Scene& scene, std::ostream* out) {
  std::string name = scene.model;
  std::erase(name, '-');  // GoogleTest allows letters, digits and underscores
  *out << name << "_" << to_string(scene.half);
}

inline models::Model make_model(const Scene& scene, const DeviceContext& device) {
  if (std::string_view(scene.model) == "other_layers")
    return models::Model(scene.model, other_layers(), scene.input, 3, device);
  return models::make(scene.model, {.input = scene.input, .seed = 3, .device = device});
}

/// A model with its optimizer and its loss scale, which is not used in f32.
class Training {
 public:
  const DeviceContext device;
  const models::Model model;
  std::unique_ptr<optim::Optimizer> optimizer;
  optim::LossScaler scaler;

  Training(const Scene& scene, DType compute, const DeviceContext& on_device,
           const optim::LossScaleSettings& scale = {})
      : device(on_device),
        model(make_model(scene, device)),
        optimizer(make_optimizer(scene.optimizer, optim::decay_groups(model.parameters(), 1e-3))),
        scaler(device, DType::f32, scale),
        batch_(scene.batch),
        compute_(compute) {
    if (is_half(compute)) model.root().keep_low_precision_copies(compute);
  }

  struct Forward {
    Variable logits;
    Variable loss;
  };
  /// Computes the gradients of the loss, which is scaled in mixed precision.
  Forward compute_gradients() const {
    const Random random{.seed = 5, .purpose = RandomPurpose::test};
    const Shape& input = model.input();
    const Shape images{batch_, input[0], input[1], input[2]};
    Values pixels(static_cast<std::size_t>(images.numel()));
    for (std::size_t i = 0; i < pixels.size(); ++i)
      pixels[i] = 2.0 * static_cast<double>(to_uniform(random.words(i, 0)[0])) - 1;
    std::vector<std::int32_t> labels, ids;
    for (std::int32_t i = 0; i < static_cast<std::int32_t>(batch_); ++i) {
      labels.push_back((3 * i + 1) % 10);
      ids.push_back(i);
    }
    const nn::ForwardContext context{
        .training = true, .seed = 1, .sample_ids = Tensor::from(ids, {batch_}, device)};
    Forward forward;
    forward.logits = model(Tensor::from(pixels, images, device).to(compute_), context);
    forward.loss = cross_entropy_sum(forward.logits, Tensor::from(labels, {batch_}, device), 0.1) /
                   static_cast<double>(batch_);
    backward(forward.loss, {.seed = is_half(compute_) ? scaler.seed() : Tensor()});
    return forward;
  }
  void optimizer_step() {
    optimizer->step(kLearningRate, {.clip_norm = 1.0, .scaler = is_half(compute_) ? &scaler : nullptr});
  }

  Values parameters() const {
    Values all;
    for (const nn::NamedParameter& parameter : model.parameters()) append(all, parameter.variable.value());
    return all;
  }
  /// Returns all values that an optimizer step changes, without the loss scale and its counters.
  Values state() const {
    Values all = parameters();
    for (const nn::NamedParameter& parameter : model.parameters())
      if (const Tensor& copy = parameter.variable.low_precision_copy(); copy.defined()) append(all, copy);
    for (const optim::NamedState& state : optimizer->state()) append(all, state.tensor);
    all.push_back(static_cast<double>(optimizer->steps()));
    return all;
  }

 private:
  std::int64_t batch_;
  DType compute_;
};

inline double inner(const Values& a, const Values& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0);
}

inline double norm(const Values& a) { return std::sqrt(inner(a, a)); }

inline Values minus(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  Values difference(a.size());
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] = a[i] - b[i];
  return difference;
}

/// Returns the maximum absolute value, or NaN if there is one.
inline double max_abs(const Values& a) {
  double result = 0;
  for (const double value : a)
    if (!(std::abs(value) <= result)) result = std::abs(value);
  return result;
}

/// Compares a step in the half-precision type of `scene` on `device` with a step in f32 on the CPU.
inline void expect_step_near_f32(const Scene& scene, const DeviceContext& device) {
  constexpr double kScale = 1024;
  Training single(scene, DType::f32, DeviceContext::create_cpu({.threads = 1}));
  Training mixed(scene, scene.half, device, {.initial = kScale});
  const Training::Forward expected = single.compute_gradients(), found = mixed.compute_gradients();

  EXPECT_EQ(found.logits.dtype(), scene.half);
  EXPECT_EQ(found.loss.dtype(), DType::f32);
  const Values logits = values_of(expected.logits.value());
  const double logit_error = scene.forward_error() * max_abs(logits);
  EXPECT_LE(max_abs(minus(values_of(found.logits.value()), logits)), logit_error);
  // The loss is a mean of functions with the gradient softmax - target, whose absolute values sum to at most
  // 2.
  EXPECT_NEAR(found.loss.value().item(), expected.loss.value().item(), 2 * logit_error);

  const double squared_error = scene.squared_gradient_error();
  const std::vector<nn::NamedParameter> singles = single.model.parameters(),
                                        mixeds = mixed.model.parameters();
  for (std::size_t i = 0; i < singles.size(); ++i) {
    SCOPED_TRACE(singles[i].name);
    EXPECT_EQ(mixeds[i].variable.grad().dtype(),
              mixeds[i].variable.low_precision_copy().defined() ? scene.half : DType::f32);
    const Values gradient = values_of(mixeds[i].variable.grad());
    const Values exact = values_of(singles[i].variable.grad());
    EXPECT_GE(inner(gradient, exact) / (norm(gradient) * norm(exact)), 1 - squared_error / 2);
    EXPECT_NEAR(norm(gradient) / kScale, norm(exact), std::sqrt(squared_error) * norm(exact));
  }

  const Values start = single.parameters();
  single.optimizer_step();
  mixed.optimizer_step();
  EXPECT_EQ(mixed.scaler.read().skipped, 0);
  EXPECT_EQ(mixed.optimizer->steps(), 1);
  // The first step of Adam is the sign of the gradient. If the angle between the two gradients is e, a sign
  // differs with probability e / pi, and the step is then wrong by 2.
  const double e = std::sqrt(squared_error);
  const double change_error =
      std::string_view(scene.optimizer) == "sgd" ? e : 2 * std::sqrt(e / std::numbers::pi);
  const Values change = minus(single.parameters(), start);
  EXPECT_LE(norm(minus(minus(mixed.parameters(), start), change)), change_error * norm(change));
  for (const nn::NamedParameter& parameter : mixeds) {
    const Tensor& copy = parameter.variable.low_precision_copy();
    if (!copy.defined()) continue;  // a parameter of a batch norm has no copy
    EXPECT_EQ(values_of(copy), values_of(parameter.variable.value().to(scene.half))) << parameter.name;
  }
}

}  // namespace convoy::testing
