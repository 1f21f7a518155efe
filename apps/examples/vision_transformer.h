// A small vision transformer (Dosovitskiy et al., arXiv:2010.11929): images as sequences of patches.
#pragma once

#include <convoy/convoy.h>

#include <string>
#include <vector>

namespace convoy::examples {

struct VisionTransformerOptions {
  Shape input{32, 32, 3};  // [H, W, C]
  int classes = 10;
  int patch = 4;  // pixels per side; divides H and W
  int width = 128, heads = 4, depth = 4;
};

/// Maps images [N, H, W, C] to logits [N, classes]: a linear function of each patch, learned positions,
/// layers of a transformer, and a linear layer on the mean of all patches.
class VisionTransformer final : public nn::Module {
 public:
  explicit VisionTransformer(VisionTransformerOptions options)
      : patches_(add_child("patches", nn::Conv2d(static_cast<int>(options.input[2]), options.width,
                                                 {.kernel = options.patch, .stride = options.patch}))),
        norm_(add_child("norm", nn::LayerNorm({options.width}))),
        head_(add_child("head", nn::Linear(options.width, options.classes))) {
    const std::int64_t count = options.input[0] / options.patch * (options.input[1] / options.patch);
    positions_ =
        add_parameter("positions", {count, options.width}, nn::ParameterKind::weight, Init::normal(0.02));
    for (int i = 0; i < options.depth; ++i)
      layers_.push_back(add_child(
          "layers." + std::to_string(i),
          nn::TransformerEncoderLayer(options.width, options.heads, {.hidden = 4 * options.width})));
  }
  std::string describe() const override { return "VisionTransformer"; }

 private:
  Variable forward(const Variable& images, const nn::ForwardContext& context) override {
    const Variable grid = patches_(images, context);  // [N, H / patch, W / patch, width]
    const Shape& shape = grid.shape();
    const Variable sequence = reshape(grid, {shape[0], shape[1] * shape[2], shape[3]});
    Variable x = sequence + nn::for_input(positions_, sequence);
    for (const nn::Layer& layer : layers_) x = layer(x, context);
    return head_(mean(norm_(x, context), {1}), context);
  }

  nn::Layer patches_, norm_, head_;
  Variable positions_;
  std::vector<nn::Layer> layers_;
};

}  // namespace convoy::examples
