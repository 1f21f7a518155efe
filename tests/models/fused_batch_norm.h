// Training with batch norms that are fused into convolutions, for comparison with separate layers.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/models/models.h"

namespace convoy::testing {

using Layers = std::vector<nn::NamedModule>;

inline std::shared_ptr<nn::Conv2d> conv(int in, int out, int kernel, int stride = 1, bool bias = false) {
  return std::make_shared<nn::Conv2d>(
      in, out,
      nn::Conv2dLayerOptions{.kernel = kernel, .stride = stride, .padding = kernel / 2, .bias = bias});
}
inline std::shared_ptr<nn::BatchNorm2d> norm(int channels) {
  return std::make_shared<nn::BatchNorm2d>(channels);
}
inline std::shared_ptr<nn::Activation> relu() {
  return std::make_shared<nn::Activation>(nn::ActivationKind::relu);
}

/// Returns a stem, a bottleneck block with a shortcut of its own, a basic block and a classifier, for images
/// [N, H, W, 3]. Four batch norms are between convolutions of a block: bn1 and bn2, and bn1 of the basic one.
inline std::shared_ptr<nn::Sequential> two_blocks() {
  const auto shortcut = std::make_shared<nn::Sequential>(Layers{{"0", conv(16, 32, 1, 2)}, {"1", norm(32)}});
  const Layers bottleneck = {{"conv1", conv(16, 8, 1)},   {"bn1", norm(8)}, {"relu1", relu()},
                             {"conv2", conv(8, 8, 3, 2)}, {"bn2", norm(8)}, {"relu2", relu()},
                             {"conv3", conv(8, 32, 1)},   {"bn3", norm(32)}};
  const Layers basic = {{"conv1", conv(32, 32, 3)},
                        {"bn1", norm(32)},
                        {"relu1", relu()},
                        {"conv2", conv(32, 32, 3)},
                        {"bn2", norm(32)}};
  return std::make_shared<nn::Sequential>(
      Layers{{"conv", conv(3, 16, 3)},
             {"bn", norm(16)},
             {"relu", relu()},
             {"bottleneck", std::make_shared<nn::ResidualBlock>(bottleneck, shortcut)},
             {"basic", std::make_shared<nn::ResidualBlock>(basic, nullptr)},
             {"pool", std::make_shared<nn::GlobalAvgPool2d>()},
             {"fc", std::make_shared<nn::Linear>(32, 10)}});
}

/// Returns random images.
inline Tensor images(const Shape& shape, DType dtype, const DeviceContext& device, std::uint32_t step = 0) {
  const Random random{.seed = 5, .purpose = RandomPurpose::test};
  std::vector<double> pixels(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < pixels.size(); ++i) pixels[i] = 2.0 * to_uniform(random.words(i, step)[0]) - 1;
  return Tensor::from(pixels, shape, device).to(dtype);
}

/// Returns the number of recorded operations that computed y, by name.
inline std::map<std::string, int> recorded_ops(const Variable& y) {
  std::map<std::string, int> counts;
  std::set<const Node*> seen;
  std::vector<Variable> left = {y};
  while (!left.empty()) {
    const Variable one = left.back();
    left.pop_back();
    if (one.is_leaf() || !seen.insert(one.creator().get()).second) continue;
    ++counts[std::string(one.creator()->name)];
    left.insert(left.end(), one.creator()->inputs.begin(), one.creator()->inputs.end());
  }
  return counts;
}

/// The results of some training steps.
struct Steps {
  std::vector<double> losses;
  std::vector<double> state;        // parameters, gradients and buffers, one after the other
  std::map<std::string, int> ops;   // of the last step
  std::size_t saved = 0, peak = 0;  // bytes of the last step: after the forward pass, and the maximum
};

/// Trains on images of this shape, with parameters of f32 if `dtype` is half precision, else of `dtype`.
inline Steps train(nn::Module& net, const Shape& shape, DType dtype, const DeviceContext& device, bool fuse,
                   int step_count = 3) {
  net.to(device);
  net.to(is_half(dtype) ? DType::f32 : dtype);
  net.initialize(3);
  const auto optimizer = optim::make_optimizer("sgd", optim::decay_groups(net.parameters(), 1e-3));
  std::vector<std::int32_t> labels(static_cast<std::size_t>(shape[0]));
  for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<std::int32_t>((3 * i + 1) % 10);
  Steps steps;
  const auto append = [&](const Tensor& tensor) {
    const std::vector<double> values = tensor.to(DType::f64).to_vector<double>();
    steps.state.insert(steps.state.end(), values.begin(), values.end());
  };
  for (int step = 0; step < step_count; ++step) {
    const Variable x(images(shape, dtype, device, static_cast<std::uint32_t>(step)));
    const std::size_t before = device.memory().stats().in_use;
    device.memory().reset_peak();
    Variable logits = net(x, {.training = true, .fuse_batch_norms = fuse});
    steps.saved = device.memory().stats().in_use - before;
    Variable loss = cross_entropy_sum(cast(logits, is_half(dtype) ? DType::f32 : dtype),
                                      Tensor::from(labels, {shape[0]}, device)) /
                    static_cast<double>(shape[0]);
    steps.ops = recorded_ops(loss);
    backward(loss);
    steps.peak = device.memory().stats().peak_in_use - before;
    steps.losses.push_back(loss.value().item());
    if (step + 1 == step_count)
      for (const nn::NamedParameter& parameter : net.parameters()) append(parameter.variable.grad());
    optimizer->step(0.05);
  }
  for (const nn::NamedParameter& parameter : net.parameters()) append(parameter.variable.value());
  for (const nn::NamedBuffer& buffer : net.buffers()) append(buffer.tensor);
  return steps;
}

/// Expects the same bits.
inline void expect_equal(const Steps& found, const Steps& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.state, expected.state);
}

}  // namespace convoy::testing
