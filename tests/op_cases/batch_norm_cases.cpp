#include "engine/ops/ops.h"
#include "tests/op_cases/op_case.h"

namespace convoy::testing {
namespace {

OpCase normalization(std::string name, const Shape& x, bool training) {
  const std::int64_t channels = x[-1];
  return {.name = "batch_norm_" + name,
          .inputs = {x, {channels}, {channels}},
          .op =
              [training, channels](std::span<const Variable> in) {
                // Fresh running statistics at each call: the op writes them, and finite differences call it
                // often.
                const BatchNormStatistics running{
                    Tensor::full({channels}, 0.125, in[0].dtype(), in[0].device()),
                    Tensor::full({channels}, 0.75, in[0].dtype(), in[0].device())};
                return batch_norm(in[0], in[1], in[2], running, training);
              },
          .terms = static_cast<double>(x.numel() / channels),
          .batched = {0}};
}

}  // namespace

std::vector<OpCase> batch_norm_cases() {
  return {
      normalization("training", {3, 4, 5, 6}, true),
      normalization("training_matrix", {9, 5}, true),
      normalization("training_two_rows", {2, 3}, true),
      normalization("inference", {3, 4, 5, 6}, false),
  };
}

}  // namespace convoy::testing
