// Batch normalization, also with a fused residual and ReLU, and synchronized over two ranks.
#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

/// Returns new running statistics. The op updates them, so each call of a finite difference needs its own.
BatchNormStatistics statistics(const Variable& scale) {
  return {Tensor::full(scale.shape(), 0.125, scale.dtype(), scale.context()),
          Tensor::full(scale.shape(), 0.75, scale.dtype(), scale.context())};
}

constexpr FusedActivation kNone = FusedActivation::none, kRelu = FusedActivation::relu,
                          kGelu = FusedActivation::gelu;

OpCase normalization(std::string name, const Shape& x, bool training, FusedActivation activation = kNone) {
  const std::int64_t channels = x[-1];
  return {.name = "batch_norm_" + name,
          .inputs = {x, {channels}, {channels}},
          .op =
              [training, activation](std::span<const Variable> in) {
                return batch_norm(in[0], in[1], in[2], statistics(in[1]), training,
                                  {.activation = activation});
              },
          .terms = static_cast<double>(x.numel() / channels),
          .batched = {0}};
}

/// A scale of 1 that requires no gradient.
OpCase fixed_scale(std::string name, const Shape& x, bool training, FusedActivation activation) {
  OpCase c = normalization("fixed_scale_" + name, x, training, activation);
  c.inputs.pop_back();
  c.op = [training, activation](std::span<const Variable> in) {
    const Variable one(Tensor::full(in[1].shape(), 1, in[1].dtype(), in[1].context()));
    return batch_norm(in[0], one, in[1], statistics(one), training, {.activation = activation});
  };
  return c;
}

OpCase with_residual(std::string name, const Shape& x, bool training, FusedActivation activation) {
  OpCase c = normalization(std::move(name), x, training, activation);
  c.inputs.push_back(x);
  c.op = [training, activation](std::span<const Variable> in) {
    return batch_norm(in[0], in[1], in[2], statistics(in[1]), training, {.activation = activation}, in[3]);
  };
  c.batched.push_back(3);
  return c;
}

/// x is its own residual, so one op makes two contributions to its gradient.
OpCase self_residual(std::string name, const Shape& x, FusedActivation activation) {
  OpCase c = normalization(std::move(name), x, true, activation);
  c.op = [activation](std::span<const Variable> in) {
    return batch_norm(in[0], in[1], in[2], statistics(in[1]), true, {.activation = activation}, in[0]);
  };
  return c;
}

/// A fake group of two ranks. The other rank has 4 constant rows of mean 0.25 and variance 0.5, and a loss of
/// 0.
class FakeTwoRankGroup final : public ProcessGroup {
 public:
  int size() const override { return 2; }
  void all_gather(const Tensor& local, const Tensor& gathered) override {
    constexpr double kRows = 4, kMean = 0.25, kSquares = 2;
    const std::int64_t size = local.numel(), channels = (size - 1) / 2;
    const auto put = [&](std::int64_t offset, std::int64_t count, double value) {
      gathered.slice(offset, {count}).copy_from(Tensor::full({count}, value, DType::f64, gathered.context()));
    };
    put(0, 1, kRows), put(1, channels, kMean), put(1 + channels, channels, kSquares);
    gathered.slice(size, {size}).copy_from(local);
  }
  void all_reduce(const Tensor& sums) override {
    const Tensor rows = sums.slice(0, {1});
    rows.copy_from(Tensor::full({1}, rows.item() + 4, DType::f64, sums.context()));
  }
};

OpCase synchronized_fixed_scale(std::string name, const Shape& x) {
  OpCase c = fixed_scale(std::move(name), x, true, kNone);
  c.op = [](std::span<const Variable> in) {
    const Variable one(Tensor::full(in[1].shape(), 1, in[1].dtype(), in[1].context()));
    return sync_batch_norm(in[0], one, in[1], statistics(one), std::make_shared<FakeTwoRankGroup>());
  };
  return c;
}

OpCase synchronized(std::string name, const Shape& x, FusedActivation activation, bool residual) {
  OpCase c = with_residual(std::move(name), x, true, activation);
  if (!residual) c.inputs.pop_back(), c.batched.pop_back();
  c.op = [activation, residual](std::span<const Variable> in) {
    return sync_batch_norm(in[0], in[1], in[2], statistics(in[1]), std::make_shared<FakeTwoRankGroup>(),
                           {.activation = activation}, residual ? in[3] : Variable());
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
      normalization("relu_training", {3, 4, 5, 6}, true, kRelu),
      normalization("relu_inference", {3, 4, 5, 6}, false, kRelu),
      normalization("gelu_training", {3, 4, 5, 6}, true, kGelu),
      normalization("gelu_training_packs", {2, 3, 3, 16}, true, kGelu),
      normalization("gelu_inference", {3, 4, 5, 6}, false, kGelu),
      with_residual("residual_training", {3, 4, 5, 6}, true, kNone),
      with_residual("residual_inference", {9, 5}, false, kNone),
      with_residual("residual_relu_training", {3, 4, 5, 6}, true, kRelu),
      with_residual("residual_relu_training_packs", {2, 3, 3, 16}, true, kRelu),
      with_residual("residual_relu_inference", {9, 5}, false, kRelu),
      self_residual("of_itself", {9, 5}, kNone),
      self_residual("relu_of_itself", {9, 5}, kRelu),
      fixed_scale("training", {3, 4, 5, 6}, true, kNone),
      fixed_scale("relu_training_packs", {2, 3, 3, 16}, true, kRelu),
      fixed_scale("inference", {9, 5}, false, kNone),
      synchronized_fixed_scale("part", {3, 4, 5, 6}),
      synchronized("part", {3, 4, 5, 6}, kNone, false),
      synchronized("part_matrix", {9, 5}, kRelu, true),
      synchronized("part_of_one_row", {1, 5}, kNone, true),
      synchronized("gelu_part", {3, 4, 5, 6}, kGelu, false),
  };
}

}  // namespace convoy::testing
