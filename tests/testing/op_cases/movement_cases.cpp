#include "convoy/engine/ops/movement.h"

#include "convoy/engine/ops/reductions.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

std::vector<OpCase> movement_cases() {
  const auto permuted = [](auto x) { return permute(x[0], {2, 0, 3, 1}); };
  const auto joined = [](auto x) { return concat({x[0], x[1], x[0]}, 1); };
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
       .batched = {0},
       .roundings = 16,
       .tails = {{{5, 3, 11, 65}}, {{40, 1, 2, 2}}, {{1, 1, 257, 5}}, {{1, 3, 1, 33}}, {{3, 8, 8, 16}}}},
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
      {.name = "permute",
       .inputs = {{2, 3, 4, 5}},
       .op = permuted,
       .batched = {0},
       .roundings = 16,
       .tails = {{{1, 33, 2, 31}}, {{2, 16, 16, 1}}},
       .benchmark = {{128, 64, 12, 64}}},
      {.name = "transpose",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return transpose(x[0], 1, -1); },
       .batched = {0},
       .roundings = 16,
       .tails = {{{1, 33, 257}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "squeeze",
       .inputs = {{3, 1, 5}},
       .op = [](auto x) { return squeeze(x[0], 1); },
       .batched = {0},
       .roundings = 16,
       .benchmark = {{128, 1, 1024}}},
      {.name = "unsqueeze",
       .inputs = {{3, 5}},
       .op = [](auto x) { return unsqueeze(x[0], -1); },
       .batched = {0},
       .roundings = 16,
       .benchmark = {{128, 1024}}},
      {.name = "broadcast_to",
       .inputs = {{3, 1, 5}},
       .op =
           [](auto x) {
             return broadcast_to(x[0], {2, 3, 4, 5});
           },
       .terms = 8,
       .roundings = 16,
       .benchmark = {{3, 1, 5}}},
      {.name = "sum_to",
       .inputs = {{2, 3, 4, 5}},
       .op =
           [](auto x) {
             const Shape& shape = x[0].shape();
             return sum_to(x[0], {shape[1], 1, shape[3]});
           },
       .terms = 8,
       .roundings = 16,
       .benchmark = {{128, 16, 4, 1024}}},
      {.name = "slice",
       .inputs = {{3, 7, 2}},
       .op = [](auto x) { return slice(x[0], 1, 1, -1, 2); },
       .batched = {0},
       .roundings = 16,
       .tails = {{{2, 257, 3}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "slice_rows",
       .inputs = {{5, 3}},
       .op = [](auto x) { return slice(x[0], 0, 2, 4); },
       .roundings = 16},
      {.name = "chunk",
       .inputs = {{3, 6}},
       .op = [](auto x) { return chunk(x[0], 3, 1)[1]; },
       .batched = {0},
       .roundings = 16,
       .benchmark = {{128, 768}}},
      {.name = "concat",
       .inputs = {{2, 3, 4}, {2, 1, 4}},
       .op = joined,
       .terms = 2,
       .batched = {0, 1},
       .roundings = 16,
       .tails = {{{1, 31, 3}, {1, 257, 3}}},
       .benchmark = {{128, 512, 64}, {128, 512, 64}}},
      {.name = "stack",
       .inputs = {{2, 3}, {2, 3}},
       .op =
           [](auto x) {
             return stack({x[0], x[1]}, -1);
           },
       .batched = {0, 1},
       .roundings = 16,
       .benchmark = {{128, 1024}, {128, 1024}}},
      {.name = "pad",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) {
             return pad(x[0], {{0, 0}, {1, 2}, {3, 0}}, 0.5);
           },
       .roundings = 16,
       .tails = {{{2, 33, 31}}},
       .benchmark = {{128, 1024, 64}}},
  };
}

std::vector<ErrorCase> movement_error_cases() {
  return {
      {"permute_count",
       [] {
         permute(zeros({2, 3}), {0});
       },
       "permute: found 1 axes for [2, 3]"},
      {"permute_twice",
       [] {
         permute(zeros({2, 3}), {0, -2});
       },
       "permute: found axis 0 twice"},
      {"permute_axis",
       [] {
         permute(zeros({2, 3}), {0, 2});
       },
       "permute: found axis 2 for [2, 3]"},
      {"transpose_axis",
       [] {
         transpose(zeros({2, 3}), 0, 2);
       },
       "transpose: found axis 2 for [2, 3]"},
      {"squeeze_size",
       [] {
         squeeze(zeros({2, 3}), 0);
       },
       "squeeze: found size 2 of axis 0"},
      {"unsqueeze_axis",
       [] {
         unsqueeze(zeros({2, 3}), 3);
       },
       "unsqueeze: found axis 3 for [2, 3]"},
      {"unsqueeze_rank",
       [] {
         unsqueeze(zeros({1, 1, 1, 1, 1, 1}), 0);
       },
       "found a shape with 7 sizes"},
      {"broadcast_to_shape",
       [] {
         broadcast_to(zeros({2, 3}), {3, 2});
       },
       "broadcast_to: found the shapes"},
      {"broadcast_to_smaller",
       [] {
         broadcast_to(zeros({2, 3}), {1, 3});
       },
       "broadcast_to: found [1, 3]"},
      {"sum_to_larger",
       [] {
         sum_to(zeros({1, 3}), {2, 3});
       },
       "sum_to: found [2, 3]"},
      {"slice_end",
       [] {
         slice(zeros({2, 3}), 1, 1, 4);
       },
       "slice: found begin 1, end 4 and step 1 for axis 1"},
      {"slice_order",
       [] {
         slice(zeros({2, 3}), 1, 2, 1);
       },
       "slice: found begin 2, end 1"},
      {"slice_step",
       [] {
         slice(zeros({2, 3}), 1, 0, 1, 0);
       },
       "and step 0"},
      {"chunk_parts",
       [] {
         chunk(zeros({2, 3}), 2, 1);
       },
       "chunk: found 2 parts of axis 1"},
      {"concat_none", [] { concat({}, 0); }, "concat: found no inputs"},
      {"concat_shapes",
       [] {
         concat({zeros({2, 3}), zeros({3, 3})}, 1);
       },
       "concat: found the shapes [2, 3] and [3, 3]"},
      {"stack_shapes",
       [] {
         stack({zeros({2}), zeros({3})}, 0);
       },
       "stack: found the shapes [2] and [3]"},
      {"pad_count",
       [] {
         pad(zeros({2, 3}), {{1, 1}});
       },
       "pad: found 1 paddings for [2, 3]"},
      {"pad_negative",
       [] {
         pad(zeros({2}), {{-1, 0}});
       },
       "pad: found -1 and 0 elements around axis 0"},
  };
}

}  // namespace convoy::testing
