#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

const Shape kOdd{3, 5, 7};

}  // namespace

const std::vector<UnaryOp>& unary_ops() {
  static const std::vector<UnaryOp> ops = {
      {"relu", relu, {.kinks = {0}}},  // 0: where the slope changes
      {"gelu", gelu},
      {"silu", silu},
      {"hardswish", hardswish, {.bound = 5, .kinks = {-3, 3}}},
      {"tanh", tanh},
      {"sigmoid", sigmoid},
  };
  return ops;
}

std::vector<OpCase> elementwise_cases() {
  std::vector<OpCase> cases = {
      {.name = "add", .inputs = {kOdd, kOdd}, .op = [](auto x) { return x[0] + x[1]; }, .batched = {0, 1}},
      {.name = "add_to_itself", .inputs = {kOdd}, .op = [](auto x) { return x[0] + x[0]; }, .batched = {0}},
      {.name = "mul", .inputs = {kOdd, kOdd}, .op = [](auto x) { return x[0] * x[1]; }, .batched = {0, 1}},
      {.name = "square", .inputs = {kOdd}, .op = [](auto x) { return x[0] * x[0]; }, .batched = {0}},
      {.name = "scale", .inputs = {kOdd}, .op = [](auto x) { return x[0] * -2.5; }, .batched = {0}},
      {.name = "dropout",
       .inputs = {kOdd},
       .op =
           [](auto x) {
             std::vector<std::int32_t> ids(static_cast<std::size_t>(x[0].shape()[0]));
             for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(1000 + 7 * i);
             const Tensor sample_ids = Tensor::from(ids, {x[0].shape()[0]}, x[0].context());
             return dropout(x[0], sample_ids, 0.4, {.seed = 3, .purpose = RandomPurpose::dropout});
           },
       .batched = {0}},
  };
  for (const UnaryOp& unary : unary_ops())
    cases.push_back({.name = unary.name,
                     .inputs = {kOdd},
                     .op = [op = unary.op](std::span<const Variable> x) { return op(x[0]); },
                     .domain = unary.domain,
                     .batched = {0},
                     .roundings = 16});
  return cases;
}

}  // namespace convoy::testing
