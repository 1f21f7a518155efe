// MobileNetV3 (Howard et al., "Searching for MobileNetV3", arXiv:1905.02244, table 2), with torchvision's parameter
// names: features.<i>.block.<j>.0 for convolutions, .1 for batch norms, .fc1 and .fc2 for squeeze-and-excitation.
#include "convoy/engine/nn/layers.h"
#include "convoy/models/models.h"

namespace convoy::models {
namespace {

/// A row of the table: kernel and stride of the depthwise convolution, and numbers of channels. `squeezed` are those
/// of squeeze-and-excitation, 0 without it.
struct MobileNetRow {
  int kernel, stride, expanded, squeezed, out;
  bool has_hardswish;  // else ReLU
};
constexpr MobileNetRow kSmall[] = {
    {3, 2, 16, 8, 16, false},   {3, 2, 72, 0, 24, false},  {3, 1, 88, 0, 24, false},
    {5, 2, 96, 24, 40, true},   {5, 1, 240, 64, 40, true}, {5, 1, 240, 64, 40, true},
    {5, 1, 120, 32, 48, true},  {5, 1, 144, 40, 48, true}, {5, 2, 288, 72, 96, true},
    {5, 1, 576, 144, 96, true}, {5, 1, 576, 144, 96, true}};

/// Squeeze-and-excitation (Hu et al., arXiv:1709.01507): scales each channel by a function of the means of all channels.
class ChannelGate final : public nn::Module {
 public:
  ChannelGate(int channels, int squeezed)
      : fc1_(add_child("fc1", nn::Conv2d(channels, squeezed, {.kernel = 1}))),
        fc2_(add_child("fc2", nn::Conv2d(squeezed, channels, {.kernel = 1}))) {}

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    const Variable means = unsqueeze(unsqueeze(global_avg_pool2d(x), 1), 1);  // [N, 1, 1, C]
    const Variable gate = fc2_(fc1_(means, context, {.activation = FusedActivation::relu}), context);
    return x * hardsigmoid(gate);
  }
  nn::Layer fc1_, fc2_;
};

/// A block, whose last batch norm adds the input unless that has another shape.
class InvertedResidual final : public nn::Module {
 public:
  InvertedResidual(std::vector<nn::Layer> layers, bool has_shortcut)
      : block_(add_child("block", nn::Sequential(std::move(layers)))), has_shortcut_(has_shortcut) {}

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    return block_(x, context, {.residual = has_shortcut_ ? x : Variable()});
  }
  nn::Layer block_;
  bool has_shortcut_;
};

/// Returns a convolution, a batch norm and, unless it is empty, an activation.
nn::Layer conv_norm(int in, int out, nn::Conv2dLayerOptions options, const nn::Layer& activation) {
  options.padding = options.kernel.height / 2;
  options.bias = false;
  options.kaiming_fan_out = true;
  std::vector<nn::Layer> layers = {nn::Conv2d(in, out, options),
                                   nn::BatchNorm2d(out, {.epsilon = 1e-3, .momentum = 0.01})};
  if (activation.module) layers.push_back(activation);
  return nn::Sequential(std::move(layers));
}

}  // namespace

Model mobilenet_v3_small(const Options& options) {
  check_plain("mobilenet_v3_small", options);
  std::vector<nn::Layer> features = {
      conv_norm(static_cast<int>(options.input[2]), 16, {.kernel = 3, .stride = 2}, nn::Hardswish())};
  int in = 16;
  for (const auto& [kernel, stride, expanded, squeezed, out, has_hardswish] : kSmall) {
    const nn::ActivationKind kind = has_hardswish ? nn::ActivationKind::hardswish : nn::ActivationKind::relu;
    std::vector<nn::Layer> layers;
    if (expanded != in) layers.push_back(conv_norm(in, expanded, {.kernel = 1}, nn::Activation(kind)));
    layers.push_back(conv_norm(expanded, expanded, {.kernel = kernel, .stride = stride, .groups = expanded},
                               nn::Activation(kind)));
    if (squeezed != 0) layers.emplace_back(ChannelGate(expanded, squeezed));
    layers.push_back(conv_norm(expanded, out, {.kernel = 1}, {}));
    features.emplace_back(InvertedResidual(std::move(layers), stride == 1 && in == out));
    in = out;
  }
  features.push_back(conv_norm(in, 576, {.kernel = 1}, nn::Hardswish()));
  nn::Sequential net({{"features", nn::Sequential(std::move(features))},
                      {"avgpool", nn::GlobalAvgPool2d()},
                      {"classifier", nn::sequential(nn::Linear(576, 1024), nn::Hardswish(), nn::Dropout(0.2),
                                                    nn::Linear(1024, options.classes))}});
  return {"mobilenet_v3_small", std::move(net), options.input, options.seed, options.device};
}

}  // namespace convoy::models
