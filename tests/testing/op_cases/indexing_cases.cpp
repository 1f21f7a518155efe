#include "convoy/engine/ops/indexing.h"

#include "tests/testing/op_cases/model_ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
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
          .terms = 40,
          .roundings = 16};
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
       .roundings = 16,
       .tails = {{{2, 33, 5}}, {{3, 2, 257}}},
       .benchmark = {{128, 256, 64}}},
      {.name = "index_select_last",
       .inputs = {{2, 3, 4}},
       .op =
           [](auto x) { return index_select(x[0], -1, drawn_indices({7}, x[0].shape()[2], x[0].context())); },
       .terms = 7,
       .batched = {0},
       .roundings = 16},
      {.name = "index_select_none",
       .inputs = {{4, 3}},
       .op = [](auto x) { return index_select(x[0], 0, drawn_indices({0}, 4, x[0].context())); },
       .roundings = 16},
      {.name = "gather",
       .inputs = {{4, 6, 3}},
       .op =
           [](auto x) {
             const Shape& shape = x[0].shape();
             return gather(x[0], drawn_indices({shape[0], 20, shape[2] - 1}, shape[1], x[0].context()), 1);
           },
       .terms = 20,
       .batched = {0},
       .roundings = 16,
       .tails = {{{1, 2, 33}}, {{2, 257, 4}}, {{33, 1, 32}}}},
      {.name = "gather_first",
       .inputs = {{4, 5}},
       .op =
           [](auto x) {
             return gather(x[0], drawn_indices({9, 5}, x[0].shape()[0], x[0].context()), 0);
           },
       .terms = 9,
       .roundings = 16},
      {.name = "gather_labels",
       .inputs = {{6, 10}},
       .op =
           [](auto x) {
             const Shape& shape = x[0].shape();
             return gather(x[0], drawn_indices({shape[0], 1}, shape[1], x[0].context()), -1);
           },
       .batched = {0},
       .roundings = 16,
       .benchmark = {{128, 50304}}},
  };
}

std::vector<ErrorCase> indexing_error_cases() {
  const auto indices = [](const std::vector<std::int32_t>& values, const Shape& shape) {
    return Tensor::from(values, shape, Device::cpu());
  };
  return {
      {"embedding_rank",
       [=] {
         embedding(zeros({2, 3, 4}), indices({0}, {1}));
       },
       "embedding: weight [2, 3, 4] has 3 dimensions, expected 2"},
      {"embedding_type",
       [=] {
         embedding(zeros({2, 3}), zeros({4}).value());
       },
       "embedding: indices are f32, expected i32"},
      {"embedding_undefined",
       [=] {
         embedding(zeros({2, 3}), {});
       },
       "embedding: indices are undefined, expected i32"},
      {"embedding_range",
       [=] {
         embedding(zeros({2, 3}), indices({0, 2}, {1, 2}));
       },
       "embedding: index 2 at position 1, expected 0 to 1"},
      {"index_select_negative",
       [=] {
         index_select(zeros({2, 3}), 1, indices({-1}, {1}));
       },
       "index_select: index -1 at position 0, expected 0 to 2"},
      {"index_select_rank",
       [=] {
         index_select(zeros({2, 3}), 1, indices({0, 1}, {1, 2}));
       },
       "index_select: indices [1, 2] have 2 dimensions, expected 1"},
      {"index_select_axis",
       [=] {
         index_select(zeros({2, 3}), 2, indices({0}, {1}));
       },
       "index_select: found axis 2 for [2, 3]"},
      {"gather_rank",
       [=] {
         gather(zeros({2, 3}), indices({0}, {1}), 0);
       },
       "gather: indices [1] for input [2, 3], expected"},
      {"gather_size",
       [=] {
         gather(zeros({1, 3}), indices({0, 0}, {2, 1}), 1);
       },
       "gather: indices [2, 1] for input [1, 3], expected"},
      {"gather_range",
       [=] {
         gather(zeros({2, 3}), indices({1, 0, 3}, {1, 3}), 1);
       },
       "gather: index 3 at position 2, expected 0 to 2"},
  };
}

}  // namespace convoy::testing
