// Layer norm and group norm.
#include "convoy/engine/ops/normalization.h"
#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

/// Returns a parameter in the type that the op expects for an input of its type.
Variable parameter(const Variable& values) {
  return is_half(values.dtype()) ? cast(values, DType::f32) : values;
}

/// Group norm with `groups` groups, or layer norm over the last axis for 0.
OpCase norm(std::string name, const Shape& x, int groups) {
  const Shape channels{x[-1]};
  return {.name = std::move(name),
          .inputs = {x, channels, channels},
          .op =
              [groups](std::span<const Variable> in) {
                const Variable weight = parameter(in[1]), bias = parameter(in[2]);
                return groups == 0 ? layer_norm(in[0], weight.shape(), weight, bias)
                                   : group_norm(in[0], groups, weight, bias);
              },
          .terms = 64.0 * static_cast<double>(x.numel()),  // dividing by a small deviation amplifies errors
          .batched = {0},
          .roundings = 24};
}

}  // namespace

std::vector<OpCase> normalization_cases() {
  const auto shapes = [](const Shape& x) { return std::vector<Shape>{x, Shape{x[-1]}, Shape{x[-1]}}; };
  OpCase layer = norm("layer_norm", {3, 4, 7}, 0);
  for (const std::int64_t size : {31, 32, 257, 1024, 1025}) layer.tails.push_back(shapes({5, size}));
  layer.tails.push_back(shapes({257, 33}));
  layer.tails.push_back(shapes({67, 64}));
  layer.benchmark = shapes({4096, 768});
  OpCase group = norm("group_norm", {2, 3, 2, 6}, 3);
  for (const Shape& x : {Shape{2, 5, 5, 48}, Shape{1, 33, 3}, Shape{3, 12, 15, 24}, Shape{5, 9}})
    group.tails.push_back(shapes(x));
  OpCase images = norm("group_norm_of_one_group", {2, 4, 3}, 1);
  OpCase wide = norm("group_norm_32", {1, 2, 96}, 32);
  wide.benchmark = shapes({16, 32, 32, 128});
  return {
      std::move(layer),
      {.name = "layer_norm_two_axes",
       .inputs = {{3, 4, 5}, {4, 5}},
       .op =
           [](auto x) {
             return layer_norm(x[0], {4, 5}, parameter(x[1]), {});
           },
       .terms = 4000,
       .batched = {0},
       .roundings = 24},
      {.name = "layer_norm_without_parameters",
       .inputs = {{3, 8}},
       .op = [](auto x) { return layer_norm(x[0], {8}, {}, {}, 1e-3); },
       .terms = 2000,
       .batched = {0},
       .roundings = 24},
      {.name = "layer_norm_long_row",  // a block per row on a GPU
       .inputs = {{1, 1030}},
       .op = [](auto x) { return layer_norm(x[0], {1030}); },
       .terms = 64.0 * 1030,
       .batched = {0},
       .roundings = 24},
      {.name = "group_norm_without_weight",
       .inputs = {{2, 3, 6}, {6}},
       .op = [](auto x) { return group_norm(x[0], 2, {}, parameter(x[1])); },
       .terms = 4000,
       .batched = {0},
       .roundings = 24},
      std::move(group),
      std::move(images),
      std::move(wide),
  };
}

std::vector<ErrorCase> normalization_error_cases() {
  return {
      {"layer_norm_shape",
       [] {
         layer_norm(zeros({2, 3}), {4});
       },
       "layer_norm: input [2, 3], expected a shape that ends with [4]"},
      {"layer_norm_weight",
       [] {
         layer_norm(zeros({2, 3}), {3}, zeros({2}));
       },
       "layer_norm: weight [2], expected [3]"},
      {"layer_norm_half_precision_bias",
       [] {
         layer_norm(zeros({2, 3}, DType::bf16), {3}, {}, zeros({3}, DType::bf16));
       },
       "layer_norm: bias is bf16, expected f32 for an input of bf16"},
      {"layer_norm_integers",
       [] {
         layer_norm(zeros({2, 3}, DType::i32), {3});
       },
       "layer_norm: input is i32 [2, 3], expected floating point"},
      {"group_norm_rank", [] { group_norm(zeros({4}), 2); }, "group_norm: input [4], expected [N, …, C]"},
      {"group_norm_groups",
       [] {
         group_norm(zeros({2, 4}), 3);
       },
       "group_norm: 3 groups of the channels of [2, 4], expected a divisor of 4"},
      {"group_norm_bias",
       [] {
         group_norm(zeros({2, 4}), 2, {}, zeros({2}));
       },
       "group_norm: bias [2], expected [4]"},
  };
}

}  // namespace convoy::testing
