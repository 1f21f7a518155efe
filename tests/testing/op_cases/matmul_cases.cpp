#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

std::vector<OpCase> matmul_cases() {
  const auto op = [](auto x) { return matmul(x[0], x[1]); };
  return {
      {.name = "matmul", .inputs = {{5, 7}, {7, 3}}, .op = op, .terms = 7, .batched = {0}},
      {.name = "matmul_vector", .inputs = {{1, 33}, {33, 1}}, .op = op, .terms = 33, .batched = {0}},
      {.name = "matmul_batch",
       .inputs = {{2, 3, 4, 5}, {2, 3, 5, 2}},
       .op = op,
       .terms = 5,
       .batched = {0, 1},
       .roundings = 8,
       .tails = {{{2, 31, 33}, {2, 33, 32}}, {{3, 65, 16}, {3, 16, 64}}, {{5, 1, 8}, {5, 8, 1}}},
       .benchmark = {{96, 256, 64}, {96, 64, 256}}},
      {.name = "matmul_batch_of_left_factors",
       .inputs = {{2, 3, 4}, {4, 5}},
       .op = op,
       .terms = 6,
       .batched = {0},
       .roundings = 8},
      {.name = "matmul_batch_of_right_factors",
       .inputs = {{3, 4}, {2, 4, 5}},
       .op = op,
       .terms = 10,
       .batched = {1},
       .roundings = 8,
       .tails = {{{31, 33}, {3, 33, 32}}}},
      {.name = "linear",
       .inputs = {{5, 7}, {3, 7}, {3}},
       .op = [](auto x) { return linear(x[0], x[1], x[2]); },
       .terms = 7,
       .batched = {0}},
      {.name = "linear_sequence",
       .inputs = {{2, 4, 5}, {3, 5}, {3}},
       .op = [](auto x) { return linear(x[0], x[1], x[2]); },
       .terms = 8,
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
