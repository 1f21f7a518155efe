// ModelOps: builds ModelCases, with arguments and call, from the sizes of ops.
#pragma once

#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/model_case.h"

namespace convoy::testing {

/// Returns a function that caches the tensor of `make`, such as labels, per device. `make` runs at the first
/// call for a device, so that nothing but the op runs while it is timed.
std::function<Tensor(const DeviceContext&)> kept(std::function<Tensor(const DeviceContext&)> make);

struct ConvolutionSizes {
  std::int64_t side = 0, in = 0, out = 0;  // pixels and channels of x; channels of y
  int kernel = 3, stride = 1, padding = 0;
  bool bias = false, relu = false;
  bool of_images = false;  // the first layer: its input requires no gradient
  bool frozen = false;     // the filter requires no gradient
};

struct LinearSizes {
  std::int64_t in = 0, out = 0;
  bool bias = true, relu = false;
};

struct NormSizes {
  std::int64_t side = 0, channels = 0;
  bool residual = false, relu = false;
  bool fixed_scale = false;  // the scale requires no gradient
  double epsilon = 1e-5, momentum = 0.1;
};

/// A builder for the ops of one network. `count` is the number of calls per step.
class ModelOps {
 public:
  ModelOps(std::string network, Sizing sizing) : network_(std::move(network)), sizing_(sizing) {}

  void conv2d(const ConvolutionSizes& sizes, int count = 1);
  void linear(const LinearSizes& sizes);
  /// Adds [batch side^2, in] times [in, out].
  void matmul(std::int64_t side, std::int64_t in, std::int64_t out);
  void batch_norm(const NormSizes& sizes, int count = 1);
  /// Adds a synchronized batch norm over a process group of one rank.
  void sync_batch_norm(std::int64_t side, std::int64_t channels);
  void pooling(const char* name, Variable (*op)(const Variable&, Pool2dOptions), std::int64_t side,
               std::int64_t channels, Pool2dOptions options);
  /// Adds cross_entropy() or cross_entropy_sum().
  void loss(std::string name, std::int64_t classes, double smoothing);

  using Unary = Variable (*)(const Variable&);
  void unary(std::string name, Unary op, std::int64_t side, std::int64_t channels, int count = 1,
             const Domain& domain = {});
  /// Adds scale() of [N, columns]; scale_loss() adds that of the loss, [1].
  void scale(std::int64_t columns, double a);
  void scale_loss();
  void dropout(std::int64_t side, std::int64_t channels);
  /// Adds a cast from the type in which the network computes: from f32 to bf16, from any other type to f32.
  void cast(std::int64_t side, std::int64_t channels);
  /// Adds a reshape of [N, H, W, C] to [N H W, C].
  void reshape(std::int64_t side, std::int64_t channels);

  /// Adds an op at the shapes at which it is to be measured, OpCase::benchmark.
  void op_case(OpCase op);

  /// Moves the collected cases out.
  std::vector<ModelCase> take() { return std::move(cases_); }

 private:
  Shape map(std::int64_t side, std::int64_t channels) const { return {sizing_.batch, side, side, channels}; }
  Argument activation() const { return {.dtype = sizing_.dtype}; }
  void scaled(std::string name, const Shape& shape, DType dtype, double a);
  /// Adds a case. Finds its cost by recording one call on the meta device, where nothing is computed.
  void add(OpCase op, std::vector<Argument> arguments, int count = 1);

  std::string network_;
  Sizing sizing_;
  std::vector<ModelCase> cases_;
};

}  // namespace convoy::testing
