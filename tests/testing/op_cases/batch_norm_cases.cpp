// Batch normalization, also with a fused residual and ReLU, synchronized over two ranks, and in convolutions.
#include "convoy/engine/ops/norm_conv2d.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

/// Returns new running statistics. The op updates them, so each call of a finite difference needs its own.
BatchNormStatistics statistics(const Variable& scale) {
  return {Tensor::full(scale.shape(), 0.125, scale.dtype(), scale.context()),
          Tensor::full(scale.shape(), 0.75, scale.dtype(), scale.context())};
}

constexpr NormActivation kNone = NormActivation::none, kRelu = NormActivation::relu,
                         kGelu = NormActivation::gelu;

OpCase normalization(std::string name, const Shape& x, bool training, NormActivation activation = kNone) {
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
OpCase fixed_scale(std::string name, const Shape& x, bool training, NormActivation activation) {
  OpCase c = normalization("fixed_scale_" + name, x, training, activation);
  c.inputs.pop_back();
  c.op = [training, activation](std::span<const Variable> in) {
    const Variable one(Tensor::full(in[1].shape(), 1, in[1].dtype(), in[1].context()));
    return batch_norm(in[0], one, in[1], statistics(one), training, {.activation = activation});
  };
  return c;
}

OpCase with_residual(std::string name, const Shape& x, bool training, NormActivation activation) {
  OpCase c = normalization(std::move(name), x, training, activation);
  c.inputs.push_back(x);
  c.op = [training, activation](std::span<const Variable> in) {
    return batch_norm(in[0], in[1], in[2], statistics(in[1]), training, {.activation = activation}, in[3]);
  };
  c.batched.push_back(3);
  return c;
}

/// x is its own residual, so one op makes two contributions to its gradient.
OpCase self_residual(std::string name, const Shape& x, NormActivation activation) {
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

OpCase synchronized(std::string name, const Shape& x, NormActivation activation, bool residual) {
  OpCase c = with_residual(std::move(name), x, true, activation);
  if (!residual) c.inputs.pop_back(), c.batched.pop_back();
  c.op = [activation, residual](std::span<const Variable> in) {
    return sync_batch_norm(in[0], in[1], in[2], statistics(in[1]), std::make_shared<FakeTwoRankGroup>(),
                           {.activation = activation}, residual ? in[3] : Variable());
  };
  return c;
}

/// Returns the batch norm after a convolution of x. Its parameters are f32 if x is f16 or bf16.
BatchNormParameters norm_of(const Variable& x, const Variable& gamma, const Variable& beta) {
  const auto widened = [&](const Variable& v) { return is_half(x.dtype()) ? cast(v, DType::f32) : v; };
  return {widened(gamma), widened(beta), statistics(widened(gamma)), {}};
}

/// A convolution and a batch norm.
OpCase with_statistics(std::string name, const Shape& x, const Shape& filter, Conv2dOptions options) {
  return {.name = std::move(name),
          .inputs = {x, filter, {filter[0]}, {filter[0]}},
          .op =
              [options](std::span<const Variable> in) {
                const BatchNormParameters norm = norm_of(in[0], in[2], in[3]);
                return normalize(conv2d_statistics(in[0], in[1], norm, options), kNone);
              },
          .terms = static_cast<double>(x.numel() / x[3] * filter.numel() / filter[0]),
          .batched = {0},
          .roundings = 64};
}

/// Two convolutions, each followed by a batch norm. The second convolution computes the first batch norm and
/// its ReLU. With `shared`, their result is also added to that of the second batch norm.
OpCase with_two_norms(std::string name, const Shape& x, const Shape& first, const Shape& second,
                      Conv2dOptions options, bool shared = false) {
  OpCase c = with_statistics(std::move(name), x, first, {.padding = 1});
  c.inputs.insert(c.inputs.end(), {second, {second[0]}, {second[0]}});
  c.op = [options, shared](std::span<const Variable> in) {
    const BatchNormInput y = conv2d_statistics(in[0], in[1], norm_of(in[0], in[2], in[3]), {.padding = 1});
    const BatchNormInput z = norm_conv2d(y, in[4], norm_of(in[0], in[5], in[6]), options);
    return normalize(z, shared ? kRelu : kNone, shared ? normalize(y, kRelu) : Variable());
  };
  return c;
}

/// Returns the case with the shapes of a ResNet-18 for its benchmark.
OpCase measured(OpCase c, std::vector<Shape> shapes) {
  c.benchmark = std::move(shapes);
  return c;
}

}  // namespace

std::vector<OpCase> batch_norm_cases() {
  const Shape images{128, 32, 32, 64}, filter{64, 3, 3, 64}, channels{64};
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
      measured(with_statistics("conv2d_statistics", {2, 5, 6, 3}, {4, 3, 3, 3}, {.padding = 1}),
               {images, filter, channels, channels}),
      with_statistics("conv2d_statistics_stride2", {2, 5, 6, 4}, {6, 1, 1, 2}, {.stride = 2, .groups = 2}),
      measured(with_two_norms("norm_conv2d_3x3", {2, 5, 6, 3}, {4, 3, 3, 3}, {5, 3, 3, 4}, {.padding = 1}),
               {images, filter, channels, channels, filter, channels, channels}),
      with_two_norms("norm_conv2d_stride2", {2, 5, 6, 3}, {8, 3, 3, 3}, {6, 1, 1, 4},
                     {.stride = 2, .groups = 2}),
      measured(with_two_norms("normalize_shared_input", {2, 4, 5, 3}, {4, 3, 3, 3}, {4, 3, 3, 4},
                              {.padding = 1}, /*shared=*/true),
               {images, filter, channels, channels, filter, channels, channels}),
  };
}

}  // namespace convoy::testing
