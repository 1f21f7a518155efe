// Layers. Initialisations are PyTorch's defaults: weights and biases of Conv2d and Linear from
// U(-1/sqrt(fan_in), 1/sqrt(fan_in)); batch norms start at scale 1 and shift 0.
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
  bool kaiming_fan_out =
      false;  // filters from N(0, 2 / (kernel^2 out)): He et al., arXiv:1502.01852, as ResNets do
};

class Conv2d final : public Module {
 public:
  Conv2d(int in_channels, int out_channels, Conv2dLayerOptions options);
  Variable forward(const Variable& x, const Pass& pass) override;
  Variable forward_with(const Variable& x, const Pass& pass, const Epilogue& epilogue) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  int in_, out_;
  Conv2dLayerOptions options_;
  Variable weight_, bias_;  // bias_ undefined where there is none
};

class Linear final : public Module {
 public:
  Linear(int in_features, int out_features, bool bias = true);
  Variable forward(const Variable& x, const Pass& pass) override;
  Variable forward_with(const Variable& x, const Pass& pass, const Epilogue& epilogue) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  int in_, out_;
  Variable weight_, bias_;
};

/// Buffers running_mean, running_var. PyTorch's num_batches_tracked, which nothing here uses, is not kept:
/// its load_state_dict does not ask for it, and engine/io passes over it when it reads.
class BatchNorm2d final : public Module {
 public:
  explicit BatchNorm2d(int channels, BatchNormOptions options = {});
  Variable forward(const Variable& x, const Pass& pass) override;
  Variable forward_with(const Variable& x, const Pass& pass, const Epilogue& epilogue) override;
  std::string describe() const override;

  BatchNormStatistics running() const { return {*running_mean_, *running_var_}; }
  /// In training, normalize from now on by the statistics of a batch in parts, of which this model has one.
  void synchronize(std::shared_ptr<PartExchange> exchange) { exchange_ = std::move(exchange); }

 private:
  Inferred infer_layer(const Shape& input) const override;
  int channels_;
  BatchNormOptions options_;
  Variable weight_, bias_;
  std::shared_ptr<Tensor> running_mean_, running_var_;
  std::shared_ptr<PartExchange> exchange_;  // null: this model has the whole batch
};

enum class ActivationKind : std::uint8_t { relu, gelu, silu, tanh, sigmoid };

class Activation final : public Module {
 public:
  explicit Activation(ActivationKind kind) : kind_(kind) {}
  ActivationKind kind() const { return kind_; }
  Variable forward(const Variable& x, const Pass& pass) override;
  std::string describe() const override;

 private:
  ActivationKind kind_;
};

/// Inverted dropout. `layer` keys its draws; give each dropout of a model another number.
class Dropout final : public Module {
 public:
  Dropout(double p, std::uint32_t layer) : p_(p), layer_(layer) {}
  Variable forward(const Variable& x, const Pass& pass) override;
  std::string describe() const override;

 private:
  double p_;
  std::uint32_t layer_;
};

class MaxPool2d final : public Module {
 public:
  explicit MaxPool2d(Pool2dOptions options) : options_(options) {}
  Variable forward(const Variable& x, const Pass& pass) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  Pool2dOptions options_;
};

class AvgPool2d final : public Module {
 public:
  explicit AvgPool2d(Pool2dOptions options) : options_(options) {}
  Variable forward(const Variable& x, const Pass& pass) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
  Pool2dOptions options_;
};

/// [N, H, W, C] -> [N, C].
class GlobalAvgPool2d final : public Module {
 public:
  Variable forward(const Variable& x, const Pass& pass) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
};

class Flatten final : public Module {
 public:
  Variable forward(const Variable& x, const Pass& pass) override;
  std::string describe() const override;

 private:
  Inferred infer_layer(const Shape& input) const override;
};

/// Runs named children in order; a ReLU is computed with the layer before it.
class Sequential final : public Module {
 public:
  using Named = std::pair<std::string, std::shared_ptr<Module>>;
  explicit Sequential(std::vector<Named> layers);
  Variable forward(const Variable& x, const Pass& pass) override;
  Variable forward_with(const Variable& x, const Pass& pass, const Epilogue& epilogue) override;
  std::string describe() const override;

 private:
  Shape infer_at(const Shape& input, const std::string& path, std::vector<LayerSummary>* rows) const override;
};

/// relu(body(x) + shortcut(x)) (He et al., arXiv:1512.03385). An empty shortcut is the identity. The children
/// of `body` are registered as the block's own, so names come out as torchvision's: "conv1", "bn1", …,
/// "downsample.0".
class ResidualBlock final : public Module {
 public:
  ResidualBlock(std::vector<Sequential::Named> body, std::shared_ptr<Module> shortcut);
  Variable forward(const Variable& x, const Pass& pass) override;
  std::string describe() const override;

 private:
  Shape infer_at(const Shape& input, const std::string& path, std::vector<LayerSummary>* rows) const override;
  std::size_t body_size_;
  std::shared_ptr<Module> shortcut_;  // null: identity
};

}  // namespace convoy
