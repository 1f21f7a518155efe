// Whole steps in mixed precision: half types for activations, f32 for parameters, beside the same step in f32
// on the CPU.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>
#include <numeric>
#include <ostream>

#include "engine/autograd/backward.h"
#include "engine/nn/layers.h"
#include "engine/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "models/models.h"

namespace convoy::testing {

using Values = std::vector<double>;

inline Values values_of(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

inline void append(Values& all, const Tensor& tensor) {
  const Values values = values_of(tensor);
  all.insert(all.end(), values.begin(), values.end());
}

inline constexpr double kRate = 0.01;

/// Every layer that no model has.
inline std::shared_ptr<Sequential> other_layers() {
  const auto activation = [](ActivationKind kind) { return std::make_shared<Activation>(kind); };
  return std::make_shared<Sequential>(std::vector<Sequential::Named>{
      {"conv", std::make_shared<Conv2d>(3, 8, Conv2dLayerOptions{.kernel = 3, .padding = 1})},
      {"gelu", activation(ActivationKind::gelu)},
      {"pool", std::make_shared<AvgPool2d>(Pool2dOptions{})},
      {"flatten", std::make_shared<Flatten>()},
      {"dropout", std::make_shared<Dropout>(0.25, 0)},
      {"fc1", std::make_shared<Linear>(8 * 4 * 4, 16)},
      {"silu", activation(ActivationKind::silu)},
      {"fc2", std::make_shared<Linear>(16, 16)},
      {"tanh", activation(ActivationKind::tanh)},
      {"fc3", std::make_shared<Linear>(16, 16, false)},
      {"sigmoid", activation(ActivationKind::sigmoid)},
      {"fc4", std::make_shared<Linear>(16, 10)}});
}

struct Scene {
  const char* model;
  Shape input;  // small: an emulated GPU is slow
  std::int64_t batch;
  const char* optimizer;
  int roundings;  // operations that round their results, from the images to the logits
  int kinks;      // of them, ReLUs and max-pools
  DType half;

  /// Of the half type: the largest relative error of a rounding.
  double roundoff() const { return half == DType::f16 ? 0x1p-11 : 0x1p-8; }
  /// Relative error of the logits: every operation rounds its weights and its result, by errors that do not
  /// know of each other and so add up as squares.
  double forward_error() const { return std::sqrt(2.0 * roundings) * roundoff(); }
  /// Relative error of a gradient, squared. Backward rounds as often as forward, and sees forward's errors in
  /// every activation, which makes at most three errors of forward's size. Besides, an activation of relative
  /// error e falls on the other side of a kink with probability 0.8 e (the density of a standard normal at 0
  /// is 0.4, on both sides), and then its whole gradient is wrong.
  double squared_gradient_error() const {
    const double e = forward_error();
    return 9 * e * e + 0.8 * kinks * e;
  }
};

/// How GoogleTest names a parameter.
inline void PrintTo(const Scene& scene, std::ostream* out) {
  *out << scene.model << "_" << name_of(scene.half);
}

inline Model make_model(const Scene& scene, const Device& device) {
  if (std::string_view(scene.model) == "other_layers")
    return Model(scene.model, other_layers(), scene.input, 10, 3, device);
  return models::make(scene.model, {.input = scene.input, .seed = 3, .device = device});
}

/// A model, its optimizer and its loss scale, of which f32 has no need.
class Training {
 public:
  const Device device;
  const Model model;
  std::unique_ptr<Optimizer> optimizer;
  LossScaler scaler;

  Training(const Scene& scene, DType compute, const Device& on_device, const LossScaleSettings& scale = {})
      : device(on_device),
        model(make_model(scene, device)),
        optimizer(make_optimizer(scene.optimizer, decay_groups(model.parameters(), 1e-3))),
        scaler(device, DType::f32, scale),
        batch_(scene.batch),
        compute_(compute) {
    if (is_half(compute)) model.root().keep_half_copies(compute);
  }

  struct Forward {
    Variable logits;
    Variable loss;
  };
  /// Leaves the gradients of the scaled loss.
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
    const Pass pass{.training = true, .seed = 1, .sample_ids = Tensor::from(ids, {batch_}, device)};
    Forward forward;
    forward.logits = model(Tensor::from(pixels, images, device).to(compute_), pass);
    forward.loss = cross_entropy_sum(forward.logits, Tensor::from(labels, {batch_}, device), 0.1) /
                   static_cast<double>(batch_);
    backward(forward.loss, {.seed = is_half(compute_) ? scaler.seed() : Tensor()});
    return forward;
  }
  void update() {
    optimizer->step(kRate, {.clip_norm = 1.0, .scaler = is_half(compute_) ? &scaler : nullptr});
  }

  Values parameters() const {
    Values all;
    for (const NamedParameter& parameter : model.parameters()) append(all, parameter.variable.value());
    return all;
  }
  /// The bytes of everything that an update changes, the scale and its counts left out.
  Values state() const {
    Values all = parameters();
    for (const NamedParameter& parameter : model.parameters())
      if (const Tensor& copy = parameter.variable.half_copy(); copy.defined()) append(all, copy);
    for (const NamedState& state : optimizer->state()) append(all, state.tensor);
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

/// NaN where there is one.
inline double largest(const Values& a) {
  double most = 0;
  for (const double value : a)
    if (!(std::abs(value) <= most)) most = std::abs(value);
  return most;
}

/// A step in the scene's half type on `device` beside one in f32 on the CPU.
inline void expect_a_step_near_single(const Scene& scene, const Device& device) {
  constexpr double kScale = 1024;
  Training single(scene, DType::f32, Device::cpu({.threads = 1}));
  Training mixed(scene, scene.half, device, {.initial = kScale});
  const Training::Forward expected = single.compute_gradients(), found = mixed.compute_gradients();

  EXPECT_EQ(found.logits.dtype(), scene.half);
  EXPECT_EQ(found.loss.dtype(), DType::f32);
  const Values logits = values_of(expected.logits.value());
  const double logit_error = scene.forward_error() * largest(logits);
  EXPECT_LE(largest(minus(values_of(found.logits.value()), logits)), logit_error);
  // The loss is a mean of functions whose slopes, softmax - target, have absolute values of sum 2 at most.
  EXPECT_NEAR(found.loss.value().item(), expected.loss.value().item(), 2 * logit_error);

  const double squared_error = scene.squared_gradient_error();
  const std::vector<NamedParameter> singles = single.model.parameters(), mixeds = mixed.model.parameters();
  for (std::size_t i = 0; i < singles.size(); ++i) {
    SCOPED_TRACE(singles[i].name);
    EXPECT_EQ(mixeds[i].variable.grad().dtype(), DType::f32);
    const Values gradient = values_of(mixeds[i].variable.grad());
    const Values exact = values_of(singles[i].variable.grad());
    EXPECT_GE(inner(gradient, exact) / (norm(gradient) * norm(exact)), 1 - squared_error / 2);
    EXPECT_NEAR(norm(gradient) / kScale, norm(exact), std::sqrt(squared_error) * norm(exact));
  }

  const Values start = single.parameters();
  single.update();
  mixed.update();
  EXPECT_EQ(mixed.scaler.read().skipped, 0);
  EXPECT_EQ(mixed.optimizer->steps(), 1);
  // The first change of Adam is the gradient's sign, which is another one where the two gradients' angle is
  // e with probability e / pi, and then wrong by 2.
  const double e = std::sqrt(squared_error);
  const double change_error =
      std::string_view(scene.optimizer) == "sgd" ? e : 2 * std::sqrt(e / std::numbers::pi);
  const Values change = minus(single.parameters(), start);
  EXPECT_LE(norm(minus(minus(mixed.parameters(), start), change)), change_error * norm(change));
  for (const NamedParameter& parameter : mixeds) {
    const Tensor& copy = parameter.variable.half_copy();
    if (!copy.defined()) continue;  // of a batch norm
    EXPECT_EQ(values_of(copy), values_of(parameter.variable.value().to(scene.half))) << parameter.name;
  }
}

}  // namespace convoy::testing
