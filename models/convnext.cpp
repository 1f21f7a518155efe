// ConvNeXt (Liu et al., "A ConvNet for the 2020s", arXiv:2201.03545), with torchvision's parameter names. Without
// stochastic depth.
#include "convoy/engine/nn/layers.h"
#include "convoy/models/models.h"

namespace convoy::models {
namespace {

nn::LayerNorm convnext_norm(int channels) { return nn::LayerNorm({channels}, {.epsilon = 1e-6}); }

/// x + layer_scale block(x), with the scale [C] of the name layer_scale, which PyTorch stores as [C, 1, 1].
class ConvNextBlock final : public nn::Module {
 public:
  explicit ConvNextBlock(int channels)
      : block_(add_child("block",
                         nn::Sequential({{"0", nn::Conv2d(channels, channels,
                                                          {.kernel = 7, .padding = 3, .groups = channels})},
                                         {"2", convnext_norm(channels)},
                                         {"3", nn::Linear(channels, 4 * channels)},
                                         {"4", nn::GELU()},
                                         {"5", nn::Linear(4 * channels, channels)}}))),
        scale_(add_parameter("layer_scale", {channels, 1, 1}, nn::ParameterKind::weight,
                             Init::constant(1e-6))) {}

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    return x + block_(x, context) * reshape(nn::for_input(scale_, x), {1, 1, 1, x.shape()[3]});
  }
  nn::Layer block_;
  Variable scale_;
};

}  // namespace

Model convnext_tiny(const Options& options) {
  check_plain("convnext_tiny", options);
  constexpr struct { int channels, blocks; } kStages[] = {{96, 3}, {192, 3}, {384, 9}, {768, 3}};
  std::vector<nn::Layer> features;
  int in = static_cast<int>(options.input[2]);
  for (const auto& [channels, blocks] : kStages) {
    if (features.empty())
      features.emplace_back(
          nn::sequential(nn::Conv2d(in, channels, {.kernel = 4, .stride = 4}), convnext_norm(channels)));
    else
      features.emplace_back(
          nn::sequential(convnext_norm(in), nn::Conv2d(in, channels, {.kernel = 2, .stride = 2})));
    std::vector<nn::Layer> stage;
    for (int i = 0; i < blocks; ++i) stage.emplace_back(ConvNextBlock(channels));
    features.emplace_back(nn::Sequential(std::move(stage)));
    in = channels;
  }
  nn::Sequential net(
      {{"features", nn::Sequential(std::move(features))},
       {"avgpool", nn::GlobalAvgPool2d()},
       {"classifier", nn::sequential(convnext_norm(in), nn::Flatten(), nn::Linear(in, options.classes))}});
  return {"convnext_tiny", std::move(net), options.input, options.seed, options.device};
}

}  // namespace convoy::models
