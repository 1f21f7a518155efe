// Scaled dot-product attention.
#include "convoy/engine/ops/attention.h"

#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

std::vector<Shape> shapes(std::int64_t batch, std::int64_t heads, std::int64_t queries, std::int64_t keys,
                          std::int64_t depth, std::int64_t width) {
  return {{batch, heads, queries, depth}, {batch, heads, keys, depth}, {batch, heads, keys, width}};
}

OpCase attention(std::string name, std::vector<Shape> inputs, AttentionOptions options) {
  const double terms = static_cast<double>(inputs[0][-2] + inputs[1][-2] + inputs[0][-1]);
  return {.name = std::move(name),
          .inputs = std::move(inputs),
          .op = [options](auto x) { return scaled_dot_product_attention(x[0], x[1], x[2], options); },
          .domain = {.bound = 2},
          .terms = 16 * terms,  // errors of scores are amplified by scores of a magnitude of about 4
          .batched = {0, 1, 2},
          .roundings = 16};
}

}  // namespace

std::vector<OpCase> attention_cases() {
  OpCase full = attention("scaled_dot_product_attention", shapes(2, 2, 3, 5, 4, 3), {});
  full.tails = {shapes(1, 2, 65, 33, 8, 16), shapes(1, 1, 3, 1025, 4, 4), shapes(2, 1, 64, 257, 16, 8),
                shapes(1, 1, 1, 1, 1, 1)};
  full.benchmark = shapes(8, 12, 256, 256, 64, 64);
  OpCase causal =
      attention("scaled_dot_product_attention_causal", shapes(2, 1, 5, 5, 4, 3), {.causal = true});
  causal.tails = {shapes(1, 2, 129, 129, 8, 8), shapes(1, 1, 300, 300, 4, 4), shapes(1, 1, 33, 290, 4, 4)};
  causal.benchmark = shapes(8, 12, 256, 256, 64, 64);
  return {
      std::move(full),
      std::move(causal),
      attention("scaled_dot_product_attention_few_keys", shapes(1, 2, 6, 3, 4, 2), {.causal = true}),
      attention("scaled_dot_product_attention_few_queries", shapes(1, 2, 3, 6, 4, 2), {.causal = true}),
      attention("scaled_dot_product_attention_scale", {{2, 3, 4}, {2, 5, 4}, {2, 5, 4}}, {.scale = 0.8}),
      {.name = "scaled_dot_product_attention_of_itself",
       .inputs = {{2, 4, 3}},
       .op = [](auto x) { return scaled_dot_product_attention(x[0], x[0], x[0]); },
       .terms = 64,
       .batched = {0},
       .roundings = 16},
  };
}

std::vector<ErrorCase> attention_error_cases() {
  return {
      {"attention_rank",
       [] {
         scaled_dot_product_attention(zeros({3, 4}), zeros({3, 4}), zeros({3, 4}));
       },
       "scaled_dot_product_attention: queries [3, 4], keys [3, 4] and values [3, 4], expected [..., T, D]"},
      {"attention_heads",
       [] {
         scaled_dot_product_attention(zeros({2, 3, 4}), zeros({3, 3, 4}), zeros({2, 3, 4}));
       },
       "queries [2, 3, 4], keys [3, 3, 4] and values [2, 3, 4], expected"},
      {"attention_depth",
       [] {
         scaled_dot_product_attention(zeros({2, 3, 4}), zeros({2, 3, 5}), zeros({2, 3, 4}));
       },
       "keys [2, 3, 5] and values"},
      {"attention_keys",
       [] {
         scaled_dot_product_attention(zeros({2, 3, 4}), zeros({2, 0, 4}), zeros({2, 0, 4}));
       },
       "values [2, 0, 4], expected at least one key"},
      {"attention_types",
       [] {
         scaled_dot_product_attention(zeros({2, 3, 4}), zeros({2, 3, 4}, DType::f64), zeros({2, 3, 4}));
       },
       "element types of f32 [2, 3, 4] and f64 [2, 3, 4] differ"},
  };
}

}  // namespace convoy::testing
