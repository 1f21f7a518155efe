// Elementwise operations, reductions and changes of shape.
#include <fmt/format.h>

#include "tests/testing/op_cases/model_ops.h"

namespace convoy::testing {

void ModelOps::unary(std::string name, Unary op, std::int64_t side, std::int64_t channels, int count,
                     const Domain& domain) {
  add({.name = fmt::format("{}_{}_{}px", name, channels, side),
       .inputs = {map(side, channels)},
       .op = [op](std::span<const Variable> in) { return op(in[0]); },
       .domain = domain},
      {activation()}, count);
}

void ModelOps::scaled(std::string name, const Shape& shape, DType dtype, double a) {
  add({.name = std::move(name),
       .inputs = {shape},
       .op = [a](std::span<const Variable> x) { return convoy::scale(x[0], a); }},
      {{.dtype = dtype}});
}

void ModelOps::scale(std::int64_t columns, double a) {
  scaled(fmt::format("scale_{}", columns), {sizing_.batch, columns}, sizing_.dtype, a);
}

void ModelOps::scale_loss() {
  // The loss of half-precision logits is f32.
  const DType dtype = is_half(sizing_.dtype) ? DType::f32 : sizing_.dtype;
  scaled("scale_loss", {1}, dtype, 1 / static_cast<double>(sizing_.batch));
}

void ModelOps::dropout(std::int64_t side, std::int64_t channels) {
  const auto ids = kept([batch = sizing_.batch](const DeviceContext& device) {
    return Tensor::full({batch}, 7, DType::i32, device);
  });
  add({.name = fmt::format("dropout_{}_{}px", channels, side),
       .inputs = {map(side, channels)},
       .op =
           [ids](std::span<const Variable> in) {
             return convoy::dropout(in[0], ids(in[0].context()), 0.1, {.purpose = RandomPurpose::dropout});
           }},
      {activation()});
}

void ModelOps::cast(std::int64_t side, std::int64_t channels) {
  const DType to = sizing_.dtype == DType::f32 ? DType::bf16 : DType::f32;
  add({.name = fmt::format("cast_to_{}_{}_{}px", to_string(to), channels, side),
       .inputs = {map(side, channels)},
       .op = [to](std::span<const Variable> in) { return convoy::cast(in[0], to); }},
      {activation()});
}

void ModelOps::reshape(std::int64_t side, std::int64_t channels) {
  const Shape rows{sizing_.batch * side * side, channels};
  add({.name = fmt::format("reshape_{}_{}px", channels, side),
       .inputs = {map(side, channels)},
       .op = [rows](std::span<const Variable> in) { return convoy::reshape(in[0], rows); }},
      {activation()});
}

void ModelOps::flatten(std::int64_t side, std::int64_t channels) {
  unary("flatten", convoy::flatten, side, channels);
}

}  // namespace convoy::testing
