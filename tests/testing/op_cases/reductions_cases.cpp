#include "convoy/engine/ops/reductions.h"

#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {

std::vector<OpCase> reductions_cases() {
  return {
      {.name = "sum_last",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return sum(x[0], {-1}); },
       .terms = 5,
       .batched = {0},
       .roundings = 16,
       .tails = {{{3, 1, 31}}, {{1, 5, 257}}, {{2, 1, 1025}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "sum_middle",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return sum(x[0], {1}, true); },
       .terms = 4,
       .batched = {0},
       .roundings = 16,
       .tails = {{{2, 31, 33}}, {{1, 257, 3}}, {{2, 3, 600}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "sum_several",
       .inputs = {{2, 3, 4, 5}},
       .op =
           [](auto x) {
             return sum(x[0], {0, 2});
           },
       .terms = 8,
       .roundings = 16},
      {.name = "sum_all",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) {
             return sum(x[0], {0, 1, 2});
           },
       .terms = 24,
       .roundings = 16},
      {.name = "mean_axes",
       .inputs = {{2, 3, 4, 5}},
       .op =
           [](auto x) {
             return mean(x[0], {1, -2}, true);
           },
       .terms = 12,
       .batched = {0},
       .roundings = 16,
       .benchmark = {{128, 32, 32, 64}}},
      {.name = "variance",
       .inputs = {{3, 4, 5}},
       .op =
           [](auto x) {
             return variance(x[0], {0, 2});
           },
       .terms = 60,
       .benchmark = {{128, 8, 1024}}},
      {.name = "max",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return max(x[0], 1); },
       .batched = {0},
       .roundings = 16,
       .tails = {{{1, 33, 31}}, {{2, 257, 1}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "max_last",
       .inputs = {{3, 5}},
       .op = [](auto x) { return max(x[0], -1, true); },
       .batched = {0},
       .roundings = 16},
      {.name = "min",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return min(x[0], 0); },
       .roundings = 16,
       .benchmark = {{128, 1024, 64}}},
      {.name = "softmax",
       .inputs = {{3, 2, 5}},
       .op = [](auto x) { return softmax(x[0]); },
       .domain = {.bound = 4},
       .terms = 5,
       .batched = {0},
       .roundings = 32,
       .tails = {{{5, 1, 33}}, {{1, 2, 1025}}, {{2, 1, 1}}},
       .benchmark = {{128, 32, 1024}}},
      // Longer than the rows that one warp processes.
      {.name = "sum_long",
       .inputs = {{2, 1030}},
       .op = [](auto x) { return sum(x[0], {1}); },
       .terms = 1030,
       .roundings = 16},
      {.name = "softmax_long",
       .inputs = {{2, 1030}},
       .op = [](auto x) { return softmax(x[0]); },
       .terms = 1030,
       .roundings = 32},
      {.name = "log_softmax_long",
       .inputs = {{2, 1030}},
       .op = [](auto x) { return log_softmax(x[0]); },
       .terms = 1030,
       .roundings = 32},
      {.name = "softmax_axis",
       .inputs = {{3, 4, 2}},
       .op = [](auto x) { return softmax(x[0], 1); },
       .terms = 4,
       .batched = {0},
       .roundings = 32},
      {.name = "log_softmax",
       .inputs = {{3, 2, 5}},
       .op = [](auto x) { return log_softmax(x[0]); },
       .domain = {.bound = 4},
       .terms = 5,
       .batched = {0},
       .roundings = 32,
       .tails = {{{5, 1, 33}}, {{1, 2, 1025}}},
       .benchmark = {{128, 32, 1024}}},
  };
}

std::vector<ErrorCase> reductions_error_cases() {
  return {
      {"sum_axis",
       [] {
         sum(zeros({2, 3}), {2});
       },
       "sum: found axis 2 for [2, 3], expected -2 to 1"},
      {"sum_twice",
       [] {
         sum(zeros({2, 3}), {1, -1});
       },
       "sum: found axis 1 of [2, 3] twice"},
      {"mean_empty_axis",
       [] {
         mean(zeros({2, 0}), {1});
       },
       "mean: found no elements along the axes of [2, 0]"},
      {"variance_of_one",
       [] {
         variance(zeros({2, 1}), {1});
       },
       "variance: found 1 elements"},
      {"max_empty_axis",
       [] {
         max(zeros({2, 0}), 1);
       },
       "max: found no elements along axis 1 of [2, 0]"},
      {"argmax_axis", [] { argmax(zeros({2}), 1); }, "argmax: found axis 1 for [2]"},
      {"softmax_empty_axis",
       [] {
         softmax(zeros({2, 0}));
       },
       "softmax: found no elements along axis 1"},
  };
}

}  // namespace convoy::testing
