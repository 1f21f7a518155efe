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

/// x is its own residual, so one op makes two contributions to its gradient.
OpCase self_residual(std::string name, const Shape& x, bool relu) {
  OpCase c = normalization(std::move(name), x, true, relu);
  c.op = [relu](std::span<const Variable> in) {
    return batch_norm(in[0], in[1], in[2], statistics(in[1]), true, {.relu = relu}, in[0]);
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

OpCase synchronized(std::string name, const Shape& x, bool relu, bool residual) {
  OpCase c = with_residual(std::move(name), x, true, relu);
  if (!residual) c.inputs.pop_back(), c.batched.pop_back();
  c.op = [relu, residual](std::span<const Variable> in) {
    return sync_batch_norm(in[0], in[1], in[2], statistics(in[1]), std::make_shared<FakeTwoRankGroup>(),
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
      self_residual("of_itself", {9, 5}, false),
      self_residual("relu_of_itself", {9, 5}, true),
      synchronized("part", {3, 4, 5, 6}, false, false),
      synchronized("part_matrix", {9, 5}, true, true),
      synchronized("part_of_one_row", {1, 5}, false, true),
  };
}

}  // namespace convoy::testing
