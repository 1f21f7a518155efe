#include "engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

const Shape kOdd{3, 5, 7};

OpCase unary(std::string name, Variable (*op)(const Variable&), double away_from_zero = 0) {
  return {.name = std::move(name),
          .inputs = {kOdd},
          .op = [op](std::span<const Variable> x) { return op(x[0]); },
          .away_from_zero = away_from_zero,
          .batched = {0}};
}

}  // namespace

std::vector<OpCase> elementwise_cases() {
  return {
      {.name = "add", .inputs = {kOdd, kOdd}, .op = [](auto x) { return x[0] + x[1]; }, .batched = {0, 1}},
      {.name = "add_to_itself", .inputs = {kOdd}, .op = [](auto x) { return x[0] + x[0]; }, .batched = {0}},
      {.name = "mul", .inputs = {kOdd, kOdd}, .op = [](auto x) { return x[0] * x[1]; }, .batched = {0, 1}},
      {.name = "square", .inputs = {kOdd}, .op = [](auto x) { return x[0] * x[0]; }, .batched = {0}},
      {.name = "scale", .inputs = {kOdd}, .op = [](auto x) { return x[0] * -2.5; }, .batched = {0}},
      unary("relu", relu, 0.01),
      unary("gelu", gelu),
      unary("silu", silu),
      unary("tanh", tanh),
      unary("sigmoid", sigmoid),
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
}

}  // namespace convoy::testing
