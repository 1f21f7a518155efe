// Costs of elementwise operations, reductions and changes of shape.
#include <fmt/format.h>

#include "tests/testing/op_cases/model_ops.h"

namespace convoy::testing {

void ModelOps::unary(std::string name, Unary op, std::int64_t side, std::int64_t channels,
                     ElementCost forward, ElementCost backward, int count) {
  const Shape x = map(side, channels);
  add({.name = fmt::format("{}_{}_{}px", name, channels, side),
       .inputs = {x},
       .op = [op](std::span<const Variable> in) { return op(in[0]); }},
      {activation()}, cost_of(x.numel(), forward), cost_of(x.numel(), backward), count);
}

void ModelOps::binary(std::string name, Binary op, std::int64_t side, std::int64_t channels,
                      ElementCost forward, ElementCost backward) {
  const Shape x = map(side, channels);
  add({.name = fmt::format("{}_{}_{}px", name, channels, side),
       .inputs = {x, x},
       .op = [op](std::span<const Variable> in) { return op(in[0], in[1]); }},
      {activation(), activation()}, cost_of(x.numel(), forward), cost_of(x.numel(), backward));
}

// Forward is x Phi(x), backward dy (Phi(x) + x phi(x)). Phi and phi count as four operations each.
void ModelOps::gelu(std::int64_t side, std::int64_t channels, int count) {
  unary("gelu", convoy::gelu, side, channels, {.flops = 5, .reads = 1, .writes = 1},
        {.flops = 11, .reads = 2, .writes = 1}, count);
}

void ModelOps::scaled(std::string name, const Shape& shape, double a) {
  const ElementCost cost{.flops = 1, .reads = 1, .writes = 1};
  add({.name = std::move(name),
       .inputs = {shape},
       .op = [a](std::span<const Variable> x) { return convoy::scale(x[0], a); }},
      {activation()}, cost_of(shape.numel(), cost), cost_of(shape.numel(), cost));
}

void ModelOps::scale(std::int64_t columns, double a) {
  scaled(fmt::format("scale_{}", columns), {sizing_.batch, columns}, a);
}

void ModelOps::scale_loss() {
  scaled("scale_loss", {1}, 1 / static_cast<double>(sizing_.batch));
  // The loss of half-precision logits is f32.
  if (is_half(sizing_.dtype)) {
    ModelCase& loss = cases_.back();
    loss.arguments[0].dtype = DType::f32;
    loss.forward.bytes = loss.backward.bytes = 2 * size_of(DType::f32);
  }
}

void ModelOps::dropout(std::int64_t side, std::int64_t channels) {
  const Shape x = map(side, channels);
  const ElementCost cost{.flops = 1, .reads = 1, .writes = 1};
  const auto ids = kept([batch = sizing_.batch](const DeviceContext& device) {
    return Tensor::full({batch}, 7, DType::i32, device);
  });
  add({.name = fmt::format("dropout_{}_{}px", channels, side),
       .inputs = {x},
       .op =
           [ids](std::span<const Variable> in) {
             return convoy::dropout(in[0], ids(in[0].context()), 0.1, {.purpose = RandomPurpose::dropout});
           }},
      {activation()}, cost_of(x.numel(), cost), cost_of(x.numel(), cost));
}

void ModelOps::cast(std::int64_t side, std::int64_t channels) {
  const Shape x = map(side, channels);
  const DType to = sizing_.dtype == DType::f32 ? DType::bf16 : DType::f32;
  const Cost cost{.bytes = x.numel() * static_cast<std::int64_t>(size_of(sizing_.dtype) + size_of(to))};
  add({.name = fmt::format("cast_to_{}_{}_{}px", to_string(to), channels, side),
       .inputs = {x},
       .op = [to](std::span<const Variable> in) { return convoy::cast(in[0], to); }},
      {activation()}, cost, cost);
}

void ModelOps::reshape(std::int64_t side, std::int64_t channels) {
  const Shape x = map(side, channels);
  const Shape rows{sizing_.batch * side * side, channels};
  add({.name = fmt::format("reshape_{}_{}px", channels, side),
       .inputs = {x},
       .op = [rows](std::span<const Variable> in) { return convoy::reshape(in[0], rows); }},
      {activation()}, {}, {});  // shares storage in both directions
}

void ModelOps::flatten(std::int64_t side, std::int64_t channels) {
  const Shape x = map(side, channels);
  // For one pixel, NHWC and NCHW order are the same bytes.
  const Cost cost = side == 1 ? Cost{} : cost_of(x.numel(), {.reads = 1, .writes = 1});
  add({.name = fmt::format("flatten_{}_{}px", channels, side),
       .inputs = {x},
       .op = [](std::span<const Variable> in) { return convoy::flatten(in[0]); }},
      {activation()}, cost, cost);
}

}  // namespace convoy::testing
