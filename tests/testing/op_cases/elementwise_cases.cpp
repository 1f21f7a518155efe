#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

const Shape kOdd{3, 5, 7};

}  // namespace

const std::vector<UnaryOp>& unary_ops() {
  static const std::vector<UnaryOp> ops = {
      {.name = "relu",
       .op = relu,
       .domain = {.kinks = {0}},
       .has_layer = true},  // 0: where the slope changes
      {.name = "gelu", .op = gelu, .has_layer = true},
      {.name = "silu", .op = silu, .has_layer = true},
      {.name = "hardswish", .op = hardswish, .domain = {.bound = 5, .kinks = {-3, 3}}, .has_layer = true},
      {.name = "hardsigmoid", .op = hardsigmoid, .domain = {.bound = 5, .kinks = {-3, 3}}},
      {.name = "gelu_tanh", .op = gelu_tanh},
      {.name = "hardtanh", .op = relu6, .domain = {.bound = 8, .kinks = {0, 6}}, .parity_bound = 8},
      {.name = "clamp",
       .op = [](const Variable& x) { return clamp(x, -0.5, 0.75); },
       .domain = {.kinks = {-0.5, 0.75}}},
      {.name = "leaky_relu", .op = [](const Variable& x) { return leaky_relu(x); }, .domain = {.kinks = {0}}},
      {.name = "elu", .op = [](const Variable& x) { return elu(x); }},
      {.name = "softplus",
       .op = [](const Variable& x) { return softplus(x, 2, 1.5); },
       .domain = {.kinks = {0.75}}},
      {.name = "tanh", .op = tanh, .has_layer = true},
      {.name = "sigmoid", .op = sigmoid, .has_layer = true},
      {.name = "exp", .op = exp, .parity_bound = 2},
      {.name = "log", .op = log, .domain = {.center = 2}, .parity_bound = 1.5},  // at positive numbers
      {.name = "sqrt", .op = sqrt, .domain = {.center = 2}, .parity_bound = 1.5},
      {.name = "abs", .op = abs, .domain = {.kinks = {0}}},
      {.name = "pow",
       .op = [](const Variable& x) { return pow(x, 1.5); },
       .domain = {.center = 2},
       .parity_bound = 1.5},
  };
  return ops;
}

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases = {
      {.name = "add_to_itself",
       .inputs = {kOdd},
       .op = [](auto x) { return x[0] + x[0]; },
       .batched = {0},
       .roundings = 16},
      {.name = "square",
       .inputs = {kOdd},
       .op = [](auto x) { return x[0] * x[0]; },
       .batched = {0},
       .roundings = 16},
      {.name = "scale",
       .inputs = {kOdd},
       .op = [](auto x) { return x[0] * -2.5; },
       .batched = {0},
       .roundings = 16},
      {.name = "dropout",
       .inputs = {kOdd},
       .op =
           [](auto x) {
             std::vector<std::int32_t> ids(static_cast<std::size_t>(x[0].shape()[0]));
             for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(1000 + 7 * i);
             const Tensor sample_ids = Tensor::from(ids, {x[0].shape()[0]}, x[0].context());
             return dropout(x[0], sample_ids, 0.4, {.seed = 3, .purpose = RandomPurpose::dropout});
           },
       .batched = {0},
       .roundings = 16},
  };
  for (const UnaryOp& unary : unary_ops())
    cases.push_back({.name = unary.name,
                     .inputs = {kOdd},
                     .op = [op = unary.op](std::span<const Variable> x) { return op(x[0]); },
                     .domain = unary.domain,
                     .batched = {0},
                     .roundings = 16,
                     .tails = {{{1}}, {{31}}, {{32}}, {{33}}, {{255}}, {{257}}, {{4096}}, {{8197}}}});
  return cases;
}

}  // namespace convoy::testing
