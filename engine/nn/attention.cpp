#include "convoy/engine/nn/attention.h"

#include <cmath>

#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy::nn {

MultiheadAttention::MultiheadAttention(int width, int heads, MultiheadAttentionOptions options)
    : width_(width), heads_(heads), options_(options) {
  check(width > 0 && heads > 0 && width % heads == 0,
        "MultiheadAttention of width {}: found {} heads, expected a positive divisor of the width", width,
        heads);
  // Xavier's bound (Glorot and Bengio, 2010) for the three projections as one matrix.
  const double bound = std::sqrt(6.0 / (4.0 * width));
  in_weight_ =
      add_parameter("in_proj_weight", {3 * width, width}, ParameterKind::weight, Init::uniform(bound));
  in_bias_ = add_parameter("in_proj_bias", {3 * width}, ParameterKind::bias, Init::constant(0));
  out_weight_ = add_parameter("out_proj.weight", {width, width}, ParameterKind::weight,
                              Init::uniform(1 / std::sqrt(static_cast<double>(width))));
  out_bias_ = add_parameter("out_proj.bias", {width}, ParameterKind::bias, Init::constant(0));
}

std::string MultiheadAttention::describe() const {
  return fmt::format("MultiheadAttention {}, {} heads{}", width_, heads_, options_.causal ? ", causal" : "");
}

Variable MultiheadAttention::forward(const Variable& x, const ForwardContext&) {
  const std::vector<Variable> qkv = chunk(project(x, 0, 3 * width_), 3, -1);
  return attend(qkv[0], qkv[1], qkv[2]);
}

Variables MultiheadAttention::forward_all(const Variables& inputs, const ForwardContext& context) {
  if (inputs.size() == 1) return {forward(inputs[0], context)};
  check(inputs.size() == 3, "found {} inputs, expected 1, or 3: query, key and value", inputs.size());
  return {attend(project(inputs[0], 0, width_), project(inputs[1], width_, width_),
                 project(inputs[2], 2 * width_, width_))};
}

Variable MultiheadAttention::project(const Variable& x, std::int64_t first, std::int64_t rows) const {
  check(x.shape().rank() == 3 && x.shape()[2] == width_, "input {}, expected [N, T, {}]", x.shape().text(),
        width_);
  const bool is_whole = rows == 3 * width_;
  return linear(x, for_input(is_whole ? in_weight_ : slice(in_weight_, 0, first, first + rows), x),
                for_input(is_whole ? in_bias_ : slice(in_bias_, 0, first, first + rows), x));
}

Variable MultiheadAttention::attend(const Variable& q, const Variable& k, const Variable& v) const {
  // [N, T, width] to [N, heads, T, width / heads]
  const auto split = [&](const Variable& x) {
    const Shape& shape = x.shape();
    return permute(reshape(x, {shape[0], shape[1], heads_, width_ / heads_}), {0, 2, 1, 3});
  };
  const Variable y = scaled_dot_product_attention(split(q), split(k), split(v), {.causal = options_.causal});
  const Variable joined = reshape(permute(y, {0, 2, 1, 3}), {q.shape()[0], q.shape()[1], width_});
  return linear(joined, for_input(out_weight_, q), for_input(out_bias_, q));
}

TransformerEncoderLayer::TransformerEncoderLayer(int width, int heads, TransformerEncoderLayerOptions options)
    : width_(width),
      heads_(heads),
      options_(options),
      attention_(
          add_child("self_attn", std::make_shared<MultiheadAttention>(
                                     width, heads, MultiheadAttentionOptions{.causal = options.causal}))),
      linear1_(add_child("linear1", std::make_shared<Linear>(width, options.hidden))),
      linear2_(add_child("linear2", std::make_shared<Linear>(options.hidden, width))),
      norm1_(add_child("norm1", std::make_shared<LayerNorm>(Shape{width}))),
      norm2_(add_child("norm2", std::make_shared<LayerNorm>(Shape{width}))) {}

std::string TransformerEncoderLayer::describe() const {
  return fmt::format("TransformerEncoderLayer {}, {} heads, hidden {}{}", width_, heads_, options_.hidden,
                     options_.causal ? ", causal" : "");
}

Variable TransformerEncoderLayer::forward(const Variable& x, const ForwardContext& context) {
  const Variable y = x + (*attention_)((*norm1_)(x, context), context);
  return y + (*linear2_)(gelu((*linear1_)((*norm2_)(y, context), context)), context);
}

}  // namespace convoy::nn
