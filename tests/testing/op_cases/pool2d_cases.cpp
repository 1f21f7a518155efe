#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

OpCase pooling(std::string name, const Shape& x, Variable (*op)(const Variable&, Pool2dOptions),
               Pool2dOptions options) {
  return {.name = std::move(name),
          .inputs = {x},
          .op = [op, options](std::span<const Variable> in) { return op(in[0], options); },
          .terms = static_cast<double>(options.kernel * options.kernel),
          .batched = {0}};
}

}  // namespace

std::vector<OpCase> pool2d_cases() {
  const Pool2dOptions half_size{.kernel = 2, .stride = 2};
  const Pool2dOptions overlapping{.kernel = 3, .stride = 2, .padding = 1};
  return {
      pooling("max_pool2d", {2, 6, 4, 3}, max_pool2d, half_size),
      pooling("max_pool2d_overlapping", {2, 7, 6, 3}, max_pool2d, overlapping),
      pooling("max_pool2d_rest_dropped", {1, 5, 5, 2}, max_pool2d, half_size),
      pooling("avg_pool2d", {2, 6, 4, 3}, avg_pool2d, half_size),
      pooling("avg_pool2d_overlapping", {2, 7, 6, 3}, avg_pool2d, overlapping),
      {.name = "global_avg_pool2d",
       .inputs = {{2, 3, 5, 4}},
       .op = [](auto x) { return global_avg_pool2d(x[0]); },
       .terms = 15,
       .batched = {0}},
  };
}

}  // namespace convoy::testing
