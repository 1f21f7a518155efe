// Layers and containers. Initial values are PyTorch's defaults: weights and biases of Conv2d and Linear from
// U(-1/sqrt(fan_in), 1/sqrt(fan_in)); scale 1 and shift 0 for batch norms.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/nn/module.h"
#include "engine/ops/ops.h"

namespace convoy {

struct Conv2dLayerOptions {
  int kernel = 3;
  int stride = 1;
  int padding = 0;
  bool bias = true;
  /// Draws filters from N(0, 2 / (kernel^2 out)) (He et al., arXiv:1502.01852), as ResNets do.
  bool kaiming_fan_out = false;
};

/// A convolution of [N, H, W, in] to [N, H', W', out].
class Conv2d final : public Module {
 public:
  Conv2d(int in_channels, int out_channels, Conv2dLayerOptions options);
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  int in_, out_;
  Conv2dLayerOptions options_;
  Variable weight_, bias_;  // bias_ is undefined without a bias
};

/// A fully connected layer of [N, in] to [N, out].
class Linear final : public Module {
 public:
  Linear(int in_features, int out_features, bool bias = true);
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  int in_, out_;
  Variable weight_, bias_;
};

/// Batch normalization over the last axis, with the buffers running_mean and running_var. It has no
/// num_batches_tracked, which nothing here uses: PyTorch's load_state_dict does not require it, and engine/io
/// ignores it when reading.
class BatchNorm2d final : public Module {
 public:
  explicit BatchNorm2d(int channels, BatchNormOptions options = {});
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  std::string describe() const override;

  BatchNormStatistics running() const { return {*running_mean_, *running_var_}; }
  /// Makes training use sync_batch_norm() over the ranks of `group` from now on.
  void synchronize(std::shared_ptr<ProcessGroup> group) { group_ = std::move(group); }

 private:
  Inferred infer_layer(const Shape& input) const override;
  int channels_;
  BatchNormOptions options_;
  Variable weight_, bias_;
  std::shared_ptr<Tensor> running_mean_, running_var_;
  std::shared_ptr<ProcessGroup> group_;  // null: statistics of the local batch
};

enum class ActivationKind : std::uint8_t { relu, gelu, silu, tanh, sigmoid };

class Activation final : public Module {
 public:
  explicit Activation(ActivationKind kind) : kind_(kind) {}
  ActivationKind kind() const { return kind_; }
  Variable forward(const Variable& x, const ForwardContext& context) override;
  std::string describe() const override;

 private:
  ActivationKind kind_;
};

/// Inverted dropout with probability `p`. `layer` keys the draws and must differ between the dropouts of a
/// model.
class Dropout final : public Module {
 public:
  Dropout(double p, std::uint32_t layer) : p_(p), layer_(layer) {}
  Variable forward(const Variable& x, const ForwardContext& context) override;
  std::string describe() const override;

 private:
  double p_;
  std::uint32_t layer_;
};

class MaxPool2d final : public Module {
 public:
  explicit MaxPool2d(Pool2dOptions options) : options_(options) {}
  Variable forward(const Variable& x, const ForwardContext& context) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  Pool2dOptions options_;
};

class AvgPool2d final : public Module {
 public:
  explicit AvgPool2d(Pool2dOptions options) : options_(options) {}
  Variable forward(const Variable& x, const ForwardContext& context) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  Pool2dOptions options_;
};

/// Average pooling over all pixels: [N, H, W, C] to [N, C].
class GlobalAvgPool2d final : public Module {
 public:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
};

/// Flattening to [N, rest], as flatten() does.
class Flatten final : public Module {
 public:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
};

/// A chain of named layers. A ReLU is fused into the layer before it.
class Sequential final : public Module {
 public:
  using Named = std::pair<std::string, std::shared_ptr<Module>>;
  explicit Sequential(std::vector<Named> layers);
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  std::string describe() const override;

 private:
  Shape infer_at(const Shape& input, const std::string& path, std::vector<LayerSummary>* rows) const override;
};

/// A residual block, relu(body(x) + shortcut(x)) (He et al., arXiv:1512.03385). A null shortcut is the
/// identity. The layers of `body` become children of the block itself, so their names are torchvision's:
/// "conv1", "bn1", …, "downsample.0".
class ResidualBlock final : public Module {
 public:
  ResidualBlock(std::vector<Sequential::Named> body, std::shared_ptr<Module> shortcut);
  Variable forward(const Variable& x, const ForwardContext& context) override;
  std::string describe() const override;

 private:
  Shape infer_at(const Shape& input, const std::string& path, std::vector<LayerSummary>* rows) const override;
  std::size_t body_size_;
  std::shared_ptr<Module> shortcut_;  // null: identity
};

}  // namespace convoy
