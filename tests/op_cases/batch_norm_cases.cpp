// CPU and GPU agree, alone and with the ReLU and the residual that an op may take along.
#include "engine/ops/ops.h"
#include "tests/op_cases/op_case.h"

namespace convoy::testing {
namespace {

/// Fresh running statistics at each call: the op writes them, and finite differences call it often.
BatchNormStatistics statistics(const Variable& scale) {
  return {Tensor::full(scale.shape(), 0.125, scale.dtype(), scale.device()),
          Tensor::full(scale.shape(), 0.75, scale.dtype(), scale.device())};
}

OpCase normalization(std::string name, const Shape& x, bool training, bool relu = false) {
  const std::int64_t channels = x[-1];
  return {.name = "batch_norm_" + name,
          .inputs = {x, {channels}, {channels}},
          .op =
              [training, relu](std::span<const Variable> in) {
                return batch_norm(in[0], in[1], in[2], statistics(in[1]), training, {.relu = relu});
              },
          .terms = static_cast<double>(x.numel() / channels),
          .batched = {0}};
}

OpCase with_residual(std::string name, const Shape& x, bool training, bool relu) {
  OpCase c = normalization(std::move(name), x, training, relu);
  c.inputs.push_back(x);
  c.op = [training, relu](std::span<const Variable> in) {
    return batch_norm(in[0], in[1], in[2], statistics(in[1]), training, {.relu = relu}, in[3]);
  };
  c.batched.push_back(3);
  return c;
}

/// x is its own residual: its gradient has two contributions from one op.
OpCase of_itself(std::string name, const Shape& x, bool relu) {
  OpCase c = normalization(std::move(name), x, true, relu);
  c.op = [relu](std::span<const Variable> in) {
    return batch_norm(in[0], in[1], in[2], statistics(in[1]), true, {.relu = relu}, in[0]);
  };
  return c;
}

}  // namespace

std::vector<OpCase> batch_norm_cases() {
  return {
      normalization("training", {3, 4, 5, 6}, true),
      normalization("training_matrix", {9, 5}, true),
      normalization("training_two_rows", {2, 3}, true),
      normalization("inference", {3, 4, 5, 6}, false),
      normalization("relu_training", {3, 4, 5, 6}, true, true),
      normalization("relu_inference", {3, 4, 5, 6}, false, true),
      with_residual("residual_training", {3, 4, 5, 6}, true, false),
      with_residual("residual_inference", {9, 5}, false, false),
      with_residual("residual_relu_training", {3, 4, 5, 6}, true, true),
      with_residual("residual_relu_training_packs", {2, 3, 3, 16}, true, true),
      with_residual("residual_relu_inference", {9, 5}, false, true),
      of_itself("of_itself", {9, 5}, false),
      of_itself("relu_of_itself", {9, 5}, true),
  };
}

}  // namespace convoy::testing
