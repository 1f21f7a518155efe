// From the sizes of an op to its ModelCase: arguments, call and cost.
#pragma once

#include "engine/ops/ops.h"
#include "tests/op_cases/model_case.h"

namespace convoy::testing {

/// What an op needs beside its arguments, such as labels: `make` is called where it is first asked for on a
/// device, and the tensor kept. While an op is timed, nothing else may run.
std::function<Tensor(const Device&)> kept(std::function<Tensor(const Device&)> make);

struct ConvolutionSizes {
  std::int64_t side = 0, in = 0, out = 0;  // pixels and channels of x; channels of y
  int kernel = 3, stride = 1, padding = 0;
  bool bias = false, relu = false;
  bool of_images = false;  // the first layer, whose input wants no gradient
  bool frozen = false;     // the filter wants none either
};

struct LinearSizes {
  std::int64_t in = 0, out = 0;
  bool bias = true, relu = false;
};

struct NormSizes {
  std::int64_t side = 0, channels = 0;
  bool residual = false, relu = false;
  bool fixed_scale = false;  // the scale wants no gradient
  double epsilon = 1e-5, momentum = 0.1;
};

/// Collects a network's ops. `count`: how often one step runs the op.
class ModelOps {
 public:
  ModelOps(std::string network, Sizing sizing) : network_(std::move(network)), sizing_(sizing) {}

  void conv2d(const ConvolutionSizes& sizes, int count = 1);
  void linear(const LinearSizes& sizes);
  /// [pixels of all images, in] times [in, out].
  void matmul(std::int64_t side, std::int64_t in, std::int64_t out);
  void batch_norm(const NormSizes& sizes, int count = 1);
  /// Of a batch in parts, of which there is one.
  void sync_batch_norm(std::int64_t side, std::int64_t channels);
  void max_pool2d(std::int64_t side, std::int64_t channels, Pool2dOptions options);
  void avg_pool2d(std::int64_t side, std::int64_t channels, Pool2dOptions options);
  void global_avg_pool2d(std::int64_t side, std::int64_t channels);
  void flatten(std::int64_t side, std::int64_t channels);
  void cross_entropy_sum(std::int64_t classes, double smoothing);
  void cross_entropy(std::int64_t classes, double smoothing);

  using Unary = Variable (*)(const Variable&);
  using Binary = Variable (*)(const Variable&, const Variable&);
  /// Operations an element, arrays read and arrays written.
  struct Passes {
    std::int64_t flops = 0, reads = 0, writes = 0;
  };
  void unary(std::string name, Unary op, std::int64_t side, std::int64_t channels, Passes forward,
             Passes backward, int count = 1);
  void binary(std::string name, Binary op, std::int64_t side, std::int64_t channels, Passes forward,
              Passes backward);
  void gelu(std::int64_t side, std::int64_t channels, int count = 1);
  /// Of [N, columns], or of the loss, [1].
  void scale(std::int64_t columns, double a);
  void scale_loss();
  void dropout(std::int64_t side, std::int64_t channels);
  /// From the type computed in: to bf16 from f32, else to f32.
  void cast(std::int64_t side, std::int64_t channels);
  /// [N, H, W, C] to [N H W, C].
  void reshape(std::int64_t side, std::int64_t channels);

  std::vector<ModelCase> take() { return std::move(cases_); }

 private:
  Shape map(std::int64_t side, std::int64_t channels) const { return {sizing_.batch, side, side, channels}; }
  std::int64_t bytes_of(std::int64_t elements) const;
  Cost cost_of(std::int64_t elements, Passes passes) const;
  Argument activation() const { return {.dtype = sizing_.dtype}; }
  void scaled(std::string name, const Shape& shape, double a);
  void pooling(std::string name, std::int64_t side, std::int64_t channels, Pool2dOptions options,
               Variable (*op)(const Variable&, Pool2dOptions), std::int64_t position_bytes);
  void loss(std::string name, std::int64_t classes, double smoothing);
  void add(OpCase op, std::vector<Argument> arguments, Cost forward, Cost backward, int count = 1);

  std::string network_;
  Sizing sizing_;
  std::vector<ModelCase> cases_;
};

}  // namespace convoy::testing
