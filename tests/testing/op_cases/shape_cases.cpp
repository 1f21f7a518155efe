#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

std::vector<OpCase> shape_cases() {
  return {
      {.name = "reshape",
       .inputs = {{4, 6}},
       .op =
           [](auto x) {
             return reshape(x[0], {3, 8});
           }},
      {.name = "flatten_image",
       .inputs = {{2, 3, 5, 4}},
       .op = [](auto x) { return flatten(x[0]); },
       .batched = {0}},
      {.name = "flatten_one_channel",
       .inputs = {{2, 3, 5, 1}},
       .op = [](auto x) { return flatten(x[0]); },
       .batched = {0}},
      {.name = "flatten_matrix",
       .inputs = {{4, 6}},
       .op = [](auto x) { return flatten(x[0]); },
       .batched = {0}},
      {.name = "sum",
       .inputs = {{5, 7}},
       .op = [](auto x) { return sum(x[0]); },
       .terms = 35,
       .batched = {0}},
      {.name = "mean", .inputs = {{5, 7}}, .op = [](auto x) { return mean(x[0]); }, .terms = 35},
  };
}

}  // namespace convoy::testing
