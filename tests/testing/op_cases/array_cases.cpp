#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/model_ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

using Binary = Variable (*)(const Variable&, const Variable&);

struct BinaryOp {
  const char* name;
  Binary op;
  Domain domain = {};
};

const BinaryOp kBinaryOps[] = {
    {"add", add},         {"sub", sub},         {"mul", mul}, {"div", div, {.center = 2}},
    {"maximum", maximum}, {"minimum", minimum},
};

/// A condition for a result of this shape: 1 for about half of the elements.
Tensor condition_for(const Shape& shape, const DeviceContext& device) {
  std::vector<std::uint8_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<std::uint8_t>(i * 5 / 3 % 2);
  return Tensor::from(values, shape, device);
}

}  // namespace

std::vector<OpCase> arithmetic_cases() {
  std::vector<OpCase> cases;
  for (const BinaryOp& binary : kBinaryOps) {
    const auto op = [op = binary.op](std::span<const Variable> x) { return op(x[0], x[1]); };
    const auto add_case = [&](const std::string& suffix, std::vector<Shape> inputs, double terms,
                              std::vector<std::size_t> batched) {
      cases.push_back({.name = binary.name + suffix,
                       .inputs = std::move(inputs),
                       .op = op,
                       .domain = binary.domain,
                       .terms = terms,
                       .batched = std::move(batched)});
      return &cases.back();
    };
    OpCase* const equal = add_case("", {{3, 5, 7}, {3, 5, 7}}, 1, {0, 1});
    equal->tails = {{{257}, {257}}};
    equal->benchmark = {{128, 32, 32, 64}, {128, 32, 32, 64}};
    OpCase* const bias = add_case("_to_rows", {{4, 3, 5}, {5}}, 12, {0});
    bias->tails = {{{33, 31}, {31}}, {{2, 257}, {257}}, {{9, 32}, {1}}};
    add_case("_with_scalar", {{4, 6}, {1}}, 24, {0});
    add_case("_to_columns", {{4, 5}, {4, 1}}, 5, {0, 1});
    add_case("_both", {{2, 1, 5}, {3, 1}}, 10, {});
    add_case("_reversed", {{5}, {2, 3, 5}}, 6, {1});
  }
  cases.push_back(
      {.name = "where",
       .inputs = {{3, 4, 5}, {3, 4, 5}},
       .op = [](auto x) { return where(condition_for(x[0].shape(), x[0].context()), x[0], x[1]); },
       .batched = {0, 1},
       .tails = {{{257}, {257}}, {{255}, {255}}},
       .benchmark = {{128, 32, 32, 64}, {128, 32, 32, 64}}});
  cases.push_back({.name = "where_broadcast",
                   .inputs = {{4, 1}, {5}},
                   .op =
                       [](auto x) {
                         return where(condition_for({3, 4, 5}, x[0].context()), x[0], x[1]);
                       },
                   .terms = 15});
  cases.push_back({.name = "add_scalar",
                   .inputs = {{3, 5, 7}},
                   .op = [](auto x) { return 0.5 - x[0] + 2; },
                   .batched = {0},
                   .tails = {{{257}}},
                   .benchmark = {{128, 32, 32, 64}}});
  cases.push_back({.name = "divide_scalar",
                   .inputs = {{3, 5}},
                   .op = [](auto x) { return 3 / x[0] - x[0] / 2; },
                   .domain = {.center = 2},
                   .batched = {0}});
  return cases;
}

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
      {.name = "mean",
       .inputs = {{5, 7}},
       .op = [](auto x) { return mean(x[0]); },
       .terms = 35,
       .roundings = 16,
       .tails = {{{8191}}, {{8192}}, {{8193}}, {{20003}}}},
      {.name = "permute",
       .inputs = {{2, 3, 4, 5}},
       .op = permuted,
       .batched = {0},
       .tails = {{{1, 33, 2, 31}}, {{2, 16, 16, 1}}},
       .benchmark = {{128, 64, 12, 64}}},
      {.name = "transpose",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return transpose(x[0], 1, -1); },
       .batched = {0},
       .tails = {{{1, 33, 257}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "squeeze",
       .inputs = {{3, 1, 5}},
       .op = [](auto x) { return squeeze(x[0], 1); },
       .batched = {0},
       .benchmark = {{128, 1, 1024}}},
      {.name = "unsqueeze",
       .inputs = {{3, 5}},
       .op = [](auto x) { return unsqueeze(x[0], -1); },
       .batched = {0},
       .benchmark = {{128, 1024}}},
      {.name = "broadcast_to",
       .inputs = {{3, 1, 5}},
       .op =
           [](auto x) {
             return broadcast_to(x[0], {2, 3, 4, 5});
           },
       .terms = 8,
       .benchmark = {{3, 1, 5}}},
      {.name = "sum_to",
       .inputs = {{2, 3, 4, 5}},
       .op =
           [](auto x) {
             const Shape& shape = x[0].shape();
             return sum_to(x[0], {shape[1], 1, shape[3]});
           },
       .terms = 8,
       .benchmark = {{128, 16, 4, 1024}}},
      {.name = "slice",
       .inputs = {{3, 7, 2}},
       .op = [](auto x) { return slice(x[0], 1, 1, -1, 2); },
       .batched = {0},
       .tails = {{{2, 257, 3}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "slice_rows", .inputs = {{5, 3}}, .op = [](auto x) { return slice(x[0], 0, 2, 4); }},
      {.name = "chunk",
       .inputs = {{3, 6}},
       .op = [](auto x) { return chunk(x[0], 3, 1)[1]; },
       .batched = {0},
       .benchmark = {{128, 768}}},
      {.name = "concat",
       .inputs = {{2, 3, 4}, {2, 1, 4}},
       .op = joined,
       .terms = 2,
       .batched = {0, 1},
       .tails = {{{1, 31, 3}, {1, 257, 3}}},
       .benchmark = {{128, 512, 64}, {128, 512, 64}}},
      {.name = "stack",
       .inputs = {{2, 3}, {2, 3}},
       .op =
           [](auto x) {
             return stack({x[0], x[1]}, -1);
           },
       .batched = {0, 1},
       .benchmark = {{128, 1024}, {128, 1024}}},
      {.name = "pad",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) {
             return pad(x[0], {{0, 0}, {1, 2}, {3, 0}}, 0.5);
           },
       .tails = {{{2, 33, 31}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "pad_reflect",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) {
             return pad(x[0], {{}, {2, 1}, {0, 3}}, PaddingMode::reflect);
           },
       .batched = {0},
       .tails = {{{2, 33, 31}}}},
      {.name = "pad_replicate",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) {
             return pad(x[0], {{1, 0}, {}, {3, 2}}, PaddingMode::replicate);
           }},
      {.name = "pad_circular",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) {
             return pad(x[0], {{}, {3, 2}, {0, 1}}, PaddingMode::circular);
           }},
  };
}

std::vector<OpCase> reductions_cases() {
  return {
      {.name = "sum_last",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return sum(x[0], {-1}); },
       .terms = 5,
       .batched = {0},
       .tails = {{{3, 1, 31}}, {{1, 5, 257}}, {{2, 1, 1025}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "sum_middle",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return sum(x[0], {1}, true); },
       .terms = 4,
       .batched = {0},
       .tails = {{{2, 31, 33}}, {{1, 257, 3}}, {{2, 3, 600}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "sum_several",
       .inputs = {{2, 3, 4, 5}},
       .op =
           [](auto x) {
             return sum(x[0], {0, 2});
           },
       .terms = 8},
      {.name = "sum_all",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) {
             return sum(x[0], {0, 1, 2});
           },
       .terms = 24},
      {.name = "mean_axes",
       .inputs = {{2, 3, 4, 5}},
       .op =
           [](auto x) {
             return mean(x[0], {1, -2}, true);
           },
       .terms = 12,
       .batched = {0},
       .benchmark = {{128, 32, 32, 64}}},
      {.name = "variance",
       .inputs = {{3, 4, 5}},
       .op =
           [](auto x) {
             return variance(x[0], {0, 2});
           },
       .terms = 60,
       .roundings = 0,
       .benchmark = {{128, 8, 1024}}},
      {.name = "max",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return max(x[0], 1); },
       .batched = {0},
       .tails = {{{1, 33, 31}}, {{2, 257, 1}}},
       .benchmark = {{128, 1024, 64}}},
      {.name = "max_last",
       .inputs = {{3, 5}},
       .op = [](auto x) { return max(x[0], -1, true); },
       .batched = {0}},
      {.name = "min",
       .inputs = {{3, 4, 5}},
       .op = [](auto x) { return min(x[0], 0); },
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
      {.name = "sum_long", .inputs = {{2, 1030}}, .op = [](auto x) { return sum(x[0], {1}); }, .terms = 1030},
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

namespace {

/// Returns indices from 0 to size - 1, some of them several times.
Tensor drawn_indices(const Shape& shape, std::int64_t size, const DeviceContext& device) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<std::int32_t>((i * i / 3 + 5 * i + 1) % static_cast<std::size_t>(size));
  return Tensor::from(values, shape, device);
}

constexpr std::int64_t kVocabulary =
    50304;  // of the benchmark: the tokens of GPT-2, rounded up to a multiple of 128

/// 40 indices, more than a chunk of 32 terms, in a row of each weight.
OpCase embedding_of(std::string name, std::int64_t columns) {
  // Made once per device, so that nothing but the op is timed.
  const auto tokens = kept([](const DeviceContext& device) {
    return drawn_indices({8, 1024}, kVocabulary, device);
  });
  return {.name = std::move(name),
          .inputs = {{5, columns}},
          .op =
              [tokens](std::span<const Variable> x) {
                const DeviceContext& device = x[0].context();
                const std::int64_t rows = x[0].shape()[0];
                return embedding(x[0],
                                 rows == kVocabulary ? tokens(device) : drawn_indices({2, 20}, rows, device));
              },
          .terms = 40};
}

}  // namespace

std::vector<OpCase> indexing_cases() {
  OpCase packed = embedding_of("embedding", 8);
  packed.tails = {{{1, 31}}, {{2, 33}}, {{33, 257}}, {{7, 1032}}};
  packed.benchmark = {{kVocabulary, 768}};
  return {
      packed,
      embedding_of("embedding_odd", 3),
      {.name = "index_select",
       .inputs = {{3, 5, 8}},
       .op =
           [](auto x) { return index_select(x[0], 1, drawn_indices({40}, x[0].shape()[1], x[0].context())); },
       .terms = 40,
       .batched = {0},
       .tails = {{{2, 33, 5}}, {{3, 2, 257}}},
       .benchmark = {{128, 256, 64}}},
      {.name = "index_select_last",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) { return index_select(x[0], -1, drawn_indices({7}, x[0].shape()[2], x[0].context())); },
       .terms = 7,
       .batched = {0}},
      {.name = "index_select_none",
       .inputs = {{4, 3}},
       .op = [](auto x) { return index_select(x[0], 0, drawn_indices({0}, 4, x[0].context())); }},
  };
}

}  // namespace convoy::testing
