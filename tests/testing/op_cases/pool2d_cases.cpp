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
          .batched = {0},
          .roundings = 16};
}

/// A window over images of some shape.
struct PoolWindow {
  const char* name;
  Shape x;
  Pool2dOptions options;
};

}  // namespace

std::vector<OpCase> pool2d_cases() {
  // 8, 16 and 24 channels come in packs for every type, odd numbers for none.
  const PoolWindow windows[] = {
      {"", {2, 6, 4, 3}, {.kernel = 2, .stride = 2}},
      {"_overlapping", {2, 7, 6, 3}, {.kernel = 3, .stride = 2, .padding = 1}},
      {"_rest_dropped", {1, 5, 5, 2}, {.kernel = 2, .stride = 2}},
      {"_in_packs", {1, 5, 5, 24}, {.kernel = 3, .stride = 2, .padding = 1}},
      {"_dense", {2, 6, 5, 17}, {.kernel = 3, .stride = 1, .padding = 1}},
      {"_with_gaps", {1, 7, 5, 8}, {.kernel = 2, .stride = 3}},
      {"_larger_than_image", {2, 5, 4, 3}, {.kernel = 5, .stride = 1, .padding = 2}},
      {"_disjoint_padded", {1, 9, 9, 6}, {.kernel = 4, .stride = 4, .padding = 2}},
      {"_of_7", {1, 9, 10, 16}, {.kernel = 7, .stride = 2, .padding = 3}},
      {"_of_17", {1, 20, 19, 8}, {.kernel = 17, .stride = 2, .padding = 1}},  // taps in i32
      {"_of_17_one_channel", {1, 18, 19, 1}, {.kernel = 17, .stride = 2, .padding = 1}},
  };
  std::vector<OpCase> cases = {{.name = "global_avg_pool2d",
                                .inputs = {{2, 3, 5, 4}},
                                .op = [](auto x) { return global_avg_pool2d(x[0]); },
                                .terms = 15,
                                .batched = {0},
                                .roundings = 16,
                                .tails = {{{1, 1, 1, 1}},
                                          {{2, 7, 5, 130}},
                                          {{1, 43, 51, 1}},
                                          {{2, 3, 3, 264}},
                                          {{70, 2, 2, 16}},
                                          {{1, 2, 2, 1025}}}}};
  for (const PoolWindow& window : windows) {
    cases.push_back(pooling(std::string("max_pool2d") + window.name, window.x, max_pool2d, window.options));
    cases.push_back(pooling(std::string("avg_pool2d") + window.name, window.x, avg_pool2d, window.options));
  }
  for (OpCase& c : cases)
    if (c.name.ends_with("_dense"))
      c.tails = {{{1, 33, 17, 5}}, {{3, 16, 17, 8}}, {{2, 11, 11, 24}}};  // several blocks
  return cases;
}

}  // namespace convoy::testing
