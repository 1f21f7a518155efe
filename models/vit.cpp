// Vision transformers (Dosovitskiy et al., "An image is worth 16x16 words", arXiv:2010.11929), with timm's parameter names,
// those of vit_tiny_patch16_224: patch_embed.proj, cls_token, pos_embed, blocks.<i>.attn.qkv …, norm, head.
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy::models {
namespace {

nn::LayerNorm vit_norm(int width) { return nn::LayerNorm({width}, {.epsilon = 1e-6}); }

/// A layer of the transformer, with normalization first.
class VitBlock final : public nn::Module {
 public:
  VitBlock(int width, int heads)
      : norm1_(add_child("norm1", vit_norm(width))),
        qkv_(add_child("attn.qkv", nn::Linear(width, 3 * width))),
        proj_(add_child("attn.proj", nn::Linear(width, width))),
        norm2_(add_child("norm2", vit_norm(width))),
        mlp_(add_child("mlp", nn::Sequential({{"fc1", nn::Linear(width, 4 * width)},
                                              {"act", nn::GELU()},
                                              {"fc2", nn::Linear(4 * width, width)}}))),
        heads_(heads) {}

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    const std::int64_t count = x.shape()[0], length = x.shape()[1], width = x.shape()[2];
    const Variable qkv =
        reshape(qkv_(norm1_(x, context), context), {count, length, 3 * heads_, width / heads_});
    const std::vector<Variable> parts =
        chunk(permute(qkv, {0, 2, 1, 3}), 3, 1);  // [N, heads, T, width / heads] each
    const Variable attended =
        permute(scaled_dot_product_attention(parts[0], parts[1], parts[2]), {0, 2, 1, 3});
    const Variable y = x + proj_(reshape(attended, {count, length, width}), context);
    return y + mlp_(norm2_(y, context), context);
  }
  nn::Layer norm1_, qkv_, proj_, norm2_, mlp_;
  int heads_;
};

class Vit final : public nn::Module {
 public:
  Vit(int width, int heads, int depth, int patch, const Options& options)
      : patches_(add_child("patch_embed.proj", nn::Conv2d(static_cast<int>(options.input[2]), width,
                                                          {.kernel = patch, .stride = patch}))),
        norm_(add_child("norm", vit_norm(width))),
        head_(add_child("head", nn::Linear(width, options.classes))) {
    const std::int64_t count = options.input[0] / patch * (options.input[1] / patch);
    first_ = add_parameter("cls_token", {1, 1, width}, nn::ParameterKind::weight, Init::normal(0.02));
    positions_ =
        add_parameter("pos_embed", {1, 1 + count, width}, nn::ParameterKind::weight, Init::normal(0.02));
    std::vector<nn::Layer> blocks;
    for (int i = 0; i < depth; ++i) blocks.emplace_back(VitBlock(width, heads));
    blocks_ = add_child("blocks", nn::Sequential(std::move(blocks)));
  }

 private:
  Variable forward(const Variable& images, const nn::ForwardContext& context) override {
    const Variable grid = patches_(images, context);  // [N, H / patch, W / patch, width]
    const std::int64_t count = grid.shape()[0], width = grid.shape()[3];
    const Variable patches = reshape(grid, {count, grid.shape()[1] * grid.shape()[2], width});
    const Variable first = broadcast_to(nn::for_input(first_, grid), {count, 1, width});
    const Variable x = concat({first, patches}, 1) + nn::for_input(positions_, grid);
    return head_(squeeze(slice(norm_(blocks_(x, context), context), 1, 0, 1), 1), context);
  }
  nn::Layer patches_, norm_, head_, blocks_;
  Variable first_, positions_;
};

}  // namespace

Model vit_tiny(const Options& options) {
  check_plain("vit_tiny", options);
  constexpr int kPatch = 16;
  check(options.input[0] % kPatch == 0 && options.input[1] % kPatch == 0,
        "vit_tiny: found an input of shape {}, expected sides that are multiples of {}", options.input.text(),
        kPatch);
  return {"vit_tiny", Vit(/*width=*/192, /*heads=*/3, /*depth=*/12, kPatch, options), options.input,
          options.seed, options.device};
}

}  // namespace convoy::models
