// A tiny deterministic training, for tests of the code around a training.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy::testing {

/// A model with a convolution, a batch norm and a linear layer. Its images depend only on the step number, so
/// two objects that have done the same steps have equal parameters, bit for bit.
class TinyTraining {
 public:
  std::shared_ptr<nn::Sequential> net;
  std::unique_ptr<optim::Optimizer> optimizer;

  explicit TinyTraining(std::string_view optimizer_name = "sgd", DType dtype = DType::f32,
                        std::uint64_t seed = 1, int classes = 5)
      : net(make_net(classes)), classes_(classes) {
    net->initialize(seed);
    net->to(dtype);
    optimizer = make_optimizer(optimizer_name, optim::decay_groups(net->parameters(), 1e-3));
  }

  /// Runs the training step `number`. With `compute`, the images have this type, and so the layers compute in
  /// it.
  void step(std::int64_t number, std::optional<DType> compute = {}) const {
    constexpr std::int64_t kBatch = 4, kSize = 6, kChannels = 3;
    const Random random{.seed = 7, .purpose = RandomPurpose::test};
    std::vector<float> pixels;
    for (std::int64_t i = 0; i < kBatch * kSize * kSize * kChannels; ++i)
      pixels.push_back(
          to_uniform(random.words(static_cast<std::uint64_t>(i), static_cast<std::uint32_t>(number))[0]));
    std::vector<std::int32_t> labels;
    for (std::int64_t i = 0; i < kBatch; ++i)
      labels.push_back(static_cast<std::int32_t>((number + i) % classes_));
    const DeviceContext device = net->parameters()[0].variable.context();
    const DType dtype = net->parameters()[0].variable.dtype();
    const Variable images(
        Tensor::from(pixels, {kBatch, kSize, kSize, kChannels}, device).to(compute.value_or(dtype)));
    const Variable logits = cast((*net)(images, {.training = true, .sample_ids = {}}), dtype);
    backward(cross_entropy_sum(logits, Tensor::from(labels, {kBatch}, device)) / kBatch);
    optimizer->step(0.1);
  }

 private:
  static std::shared_ptr<nn::Sequential> make_net(int classes) {
    return std::make_shared<nn::Sequential>(std::vector<nn::Layer>{
        {"conv", std::make_shared<nn::Conv2d>(
                     3, 4, nn::Conv2dLayerOptions{.kernel = 3, .padding = 1, .bias = false})},
        {"bn", std::make_shared<nn::BatchNorm2d>(4)},
        {"relu", std::make_shared<nn::Activation>(nn::ActivationKind::relu)},
        {"pool", std::make_shared<nn::GlobalAvgPool2d>()},
        {"fc", std::make_shared<nn::Linear>(4, classes)}});
  }

  int classes_;
};

}  // namespace convoy::testing
