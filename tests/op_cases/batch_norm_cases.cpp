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

/// One of two parts. The other one is constant, and its loss is 0: 4 rows of mean 0.25 and variance 0.5.
class ConstantPart final : public PartExchange {
 public:
  int parts() const override { return 2; }
  void all_gather(const Tensor& mine, const Tensor& all) override {
    constexpr double kRows = 4, kMean = 0.25, kSquares = 2;
    const std::int64_t size = mine.numel(), channels = (size - 1) / 2;
    const auto put = [&](std::int64_t offset, std::int64_t count, double value) {
      all.slice(offset, {count}).copy_from(Tensor::full({count}, value, DType::f64, all.device()));
    };
    put(0, 1, kRows), put(1, channels, kMean), put(1 + channels, channels, kSquares);
    all.slice(size, {size}).copy_from(mine);
  }
  void all_reduce(const Tensor& sums) override {
    const Tensor rows = sums.slice(0, {1});
    rows.copy_from(Tensor::full({1}, rows.item() + 4, DType::f64, sums.device()));
  }
};

OpCase of_part(std::string name, const Shape& x, bool relu, bool residual) {
  OpCase c = with_residual(std::move(name), x, true, relu);
  if (!residual) c.inputs.pop_back(), c.batched.pop_back();
  c.op = [relu, residual](std::span<const Variable> in) {
    return sync_batch_norm(in[0], in[1], in[2], statistics(in[1]), std::make_shared<ConstantPart>(),
                           {.relu = relu}, residual ? in[3] : Variable());
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
      of_part("part", {3, 4, 5, 6}, false, false),
      of_part("part_matrix", {9, 5}, true, true),
      of_part("part_of_one_row", {1, 5}, false, true),
  };
}

}  // namespace convoy::testing
