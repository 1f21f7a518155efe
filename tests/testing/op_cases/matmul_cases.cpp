#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

std::vector<OpCase> matmul_cases() {
  const auto op = [](auto x) { return matmul(x[0], x[1]); };
  return {
      {.name = "matmul", .inputs = {{5, 7}, {7, 3}}, .op = op, .terms = 7, .batched = {0}},
      {.name = "matmul_vector", .inputs = {{1, 33}, {33, 1}}, .op = op, .terms = 33, .batched = {0}},
      {.name = "linear",
       .inputs = {{5, 7}, {3, 7}, {3}},
       .op = [](auto x) { return linear(x[0], x[1], x[2]); },
       .terms = 7,
       .batched = {0}},
      {.name = "linear_relu",
       .inputs = {{5, 7}, {3, 7}, {3}},
       .op = [](auto x) { return linear(x[0], x[1], x[2], true); },
       .terms = 7,
       .batched = {0}},
      {.name = "linear_relu_without_bias",
       .inputs = {{5, 7}, {3, 7}},
       .op = [](auto x) { return linear(x[0], x[1], Variable(), true); },
       .terms = 7,
       .batched = {0}},
      {.name = "linear_without_bias",
       .inputs = {{5, 7}, {3, 7}},
       .op = [](auto x) { return linear(x[0], x[1], Variable()); },
       .terms = 7,
       .batched = {0}},
  };
}

}  // namespace convoy::testing
