// Layers and containers. Initial values are PyTorch's defaults: weights and biases of Conv2d and Linear from
// U(-1/sqrt(fan_in), 1/sqrt(fan_in)); scale 1 and shift 0 for batch norms.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/nn/module.h"
#include "convoy/engine/ops/ops.h"

namespace convoy::nn {

/// Options of Conv2d. A number is for both axes, {2, 1} for the rows and for the columns.
struct Conv2dLayerOptions {
  Size2d kernel = 3;    // size of the filter
  Size2d stride = 1;    // distance of neighboring windows
  Size2d padding = 0;   // pixels in front of and behind each axis, or kSamePadding
  Size2d dilation = 1;  // distance of the pixels that neighboring values of the filter are multiplied with
  int groups = 1;       // of channels; must divide the numbers of input and of output channels
  bool bias = true;     // whether there is a bias
  PaddingMode padding_mode = PaddingMode::zeros;  // zeros, reflect, replicate or circular
  /// Draws filters from N(0, 2 / (kernel height width out)) (He et al., arXiv:1502.01852), as ResNets do.
  bool kaiming_fan_out = false;
  /// Whether filter i, for all i < min(in, out), begins as a copy of input channel i: a 1 in its center, and
  /// zeros elsewhere.
  bool dirac = false;
};

/// A convolution of [N, H, W, in] to [N, H', W', out].
class Conv2d final : public Module {
 public:
  /// Throws UsageError unless channels, kernel, stride and dilation are positive, the padding is not negative, the
  /// stride is 1 with kSamePadding, `groups` divides both numbers of channels, and is 1 with `dirac`.
  Conv2d(int in_channels, int out_channels, Conv2dLayerOptions options = {});
  std::string describe() const override;
  bool fuses(const Epilogue& epilogue) const override { return epilogue.is_at_most(FusedActivation::relu); }
  /// Returns the options of the layer.
  const Conv2dLayerOptions& options() const { return options_; }

 private:
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  int in_, out_;
  Conv2dLayerOptions options_;
  Variable weight_, bias_;  // bias_ is undefined without a bias
};

/// A fully connected layer of [N, …, in] to [N, …, out].
class Linear final : public Module {
 public:
  /// Throws UsageError unless the numbers of features are positive.
  Linear(int in_features, int out_features, bool bias = true);
  std::string describe() const override;
  bool fuses(const Epilogue& epilogue) const override { return epilogue.is_at_most(FusedActivation::relu); }

 private:
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  int in_, out_;
  Variable weight_, bias_;
};

/// Batch normalization over the last axis, with the buffers running_mean and running_var, whose momentum is that
/// of the options, as in PyTorch, unless ForwardContext::norm_batch raises it. It has no
/// num_batches_tracked, which nothing here uses: PyTorch's load_state_dict does not require it, and engine/io
/// ignores it when reading.
class BatchNorm2d final : public Module {
 public:
  /// If `train_scale` is false, the scale stays 1. It is a buffer then, named weight as in the state dict
  /// of a PyTorch layer whose scale requires no gradient. Throws UsageError unless `channels` is positive.
  explicit BatchNorm2d(int channels, BatchNormOptions options = {}, bool train_scale = true);
  std::string describe() const override;
  /// Returns true for a residual, a ReLU or both, and for a GELU alone. After a ReLU of the options: for
  /// another ReLU, which changes nothing.
  bool fuses(const Epilogue& epilogue) const override;

  /// Returns the running statistics, which share the storage of the buffers.
  BatchNormStatistics running() const { return {*running_mean_, *running_var_}; }
  /// Makes training use sync_batch_norm() over the ranks of `group` from now on; null: the samples of this
  /// process.
  void synchronize(std::shared_ptr<ProcessGroup> group) { group_ = std::move(group); }
  /// Returns whether training leaves the running statistics as they are.
  bool is_frozen() const { return is_frozen_; }
  /// Sets whether training normalizes by the running statistics, as evaluation does, and does not update
  /// them.
  void freeze_statistics(bool freeze = true) { is_frozen_ = freeze; }

 private:
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  int channels_;
  BatchNormOptions options_;
  Variable weight_, bias_;  // weight_ is undefined with a fixed scale
  std::shared_ptr<Tensor> fixed_scale_, running_mean_, running_var_;
  std::shared_ptr<ProcessGroup> group_;  // null: statistics of the local batch
  bool is_frozen_ = false;
};

/// A layer without parameters that calls a function.
class Function : public Module {
 public:
  /// Makes a layer that computes f(x) and that describe() describes as `description`.
  Function(std::string description, std::function<Variable(const Variable& x)> f)
      : description_(std::move(description)), f_(std::move(f)) {}
  std::string describe() const override { return description_; }

 private:
  Variable forward(const Variable& x, const ForwardContext&) override { return f_(x); }
  std::string description_;
  std::function<Variable(const Variable& x)> f_;
};

/// An activation, by the name of its op.
enum class ActivationKind : std::uint8_t { relu, gelu, silu, hardswish, tanh, sigmoid };

/// An elementwise activation of any shape.
class Activation : public Function {
 public:
  /// Makes the layer of an op.
  explicit Activation(ActivationKind kind);
  FusedActivation fusible_activation() const override { return fusible_; }

 private:
  FusedActivation fusible_;
};

/// The layer of one activation, without an argument.
template <ActivationKind kind>
struct ActivationOf final : Activation {
  /// Makes the layer.
  ActivationOf() : Activation(kind) {}
};
using ReLU = ActivationOf<ActivationKind::relu>;            ///< Activation with relu().
using GELU = ActivationOf<ActivationKind::gelu>;            ///< Activation with gelu().
using SiLU = ActivationOf<ActivationKind::silu>;            ///< Activation with silu().
using Hardswish = ActivationOf<ActivationKind::hardswish>;  ///< Activation with hardswish().
using Tanh = ActivationOf<ActivationKind::tanh>;            ///< Activation with tanh().
using Sigmoid = ActivationOf<ActivationKind::sigmoid>;      ///< Activation with sigmoid().

/// Inverted dropout with probability `p`. The draws are keyed by the path of the layer, so the dropouts of a
/// model differ, and two models that are built alike drop the same elements.
class Dropout final : public Module {
 public:
  /// Throws UsageError unless 0 <= p < 1.
  explicit Dropout(double p);
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  double p_;
};

/// Max pooling of [N, H, W, C], as max_pool2d() does.
class MaxPool2d final : public Function {
 public:
  /// Throws UsageError unless kernel and stride are positive and the padding is 0 to kernel / 2.
  explicit MaxPool2d(Pool2dOptions options);
  /// Makes windows of this size next to each other: the stride is `kernel` too.
  explicit MaxPool2d(Size2d kernel) : MaxPool2d({.kernel = kernel, .stride = kernel}) {}
};

/// Average pooling of [N, H, W, C], as avg_pool2d() does.
class AvgPool2d final : public Function {
 public:
  /// Throws UsageError unless kernel and stride are positive and the padding is 0 to kernel / 2.
  explicit AvgPool2d(Pool2dOptions options);
  /// Makes windows as MaxPool2d does.
  explicit AvgPool2d(Size2d kernel) : AvgPool2d({.kernel = kernel, .stride = kernel}) {}
};

/// Max pooling of [N, H, W, C] to [N, height, width, C], as adaptive_max_pool2d() does.
class AdaptiveMaxPool2d final : public Function {
 public:
  /// Throws UsageError unless the size of the result is positive.
  explicit AdaptiveMaxPool2d(Size2d size);
};

/// Average pooling of [N, H, W, C] to [N, height, width, C], as adaptive_avg_pool2d() does.
class AdaptiveAvgPool2d final : public Function {
 public:
  /// Throws UsageError unless the size of the result is positive.
  explicit AdaptiveAvgPool2d(Size2d size);
};

/// Average pooling over all pixels: [N, H, W, C] to [N, C].
class GlobalAvgPool2d final : public Function {
 public:
  /// Makes the layer.
  GlobalAvgPool2d() : Function("GlobalAvgPool2d", global_avg_pool2d) {}
};

/// Flattening to [N, rest], as flatten() does.
class Flatten final : public Function {
 public:
  /// Makes the layer.
  Flatten() : Function("Flatten", flatten) {}
};

/// The layers of a container, which run in order. A layer computes the activation after it as well if it can
/// (Module::fuses() and fusible_activation()).
class LayerChain {
 public:
  /// Makes an empty chain.
  LayerChain() = default;
  /// Makes a chain that refers to the layers: the container must own them.
  explicit LayerChain(const std::vector<Layer>& layers);

  /// Runs the layers. The last one computes the epilogue, for which fuses() must be true.
  Variable operator()(const Variable& x, const ForwardContext& context, const Epilogue& epilogue = {}) const;
  /// Returns whether the last layer computes this epilogue.
  bool fuses(const Epilogue& epilogue) const;

 private:
  std::vector<Module*> layers_;
};

/// A chain of layers. A ReLU or GELU is fused into the layer before it if that layer can.
class Sequential final : public Module {
 public:
  /// Calls a layer without a name by its position, as PyTorch: "0", "1" and so on. Throws UsageError like add_child().
  explicit Sequential(std::vector<Layer> layers);
  std::string describe() const override;
  bool fuses(const Epilogue& epilogue) const override { return chain_.fuses(epilogue); }

 private:
  Variable forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) override;
  std::size_t size_;
  LayerChain chain_;
};

/// Returns a chain of layers by value: sequential(nn::Flatten(), nn::Linear(784, 10)). With names, construct a
/// Sequential: nn::Sequential({{"flatten", nn::Flatten()}, {"fc", nn::Linear(784, 10)}}).
template <class... Layers>
Sequential sequential(Layers&&... layers) {
  return Sequential(std::vector<Layer>{Layer(std::forward<Layers>(layers))...});
}

/// A residual block, relu(body(x) + shortcut(x)) (He et al., arXiv:1512.03385). A null shortcut is the
/// identity. The layers of `body` become children of the block itself, so their names are torchvision's:
/// "conv1", "bn1", …, "downsample.0". The last layer of the body fuses the addition and the ReLU if it can.
class ResidualBlock final : public Module {
 public:
  /// Throws UsageError like add_child().
  ResidualBlock(std::vector<Layer> body, std::shared_ptr<Module> shortcut);
  std::string describe() const override;
  /// Sets whether training keeps only the input of the block for backward, which computes the block again
  /// (checkpoint_activations()). Forward hooks of the layers are then called twice.
  void checkpoint_activations(bool checkpoints) { checkpoints_ = checkpoints; }

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Variable compute(const Variable& x, const ForwardContext& context) const;
  std::size_t body_size_;
  bool checkpoints_ = false;
  std::shared_ptr<Module> shortcut_;  // null: identity
  LayerChain body_;
};

/// Calls ResidualBlock::checkpoint_activations(true) for every residual block of the network, and returns
/// their number.
int checkpoint_residual_blocks(Module& root);

// ---- Normalization within samples. Training and inference are the same ----

/// Options of LayerNorm and GroupNorm.
struct NormOptions {
  double epsilon = 1e-5;  // added to the variance
  bool affine = true;     // has the parameters weight, initially 1, and bias, initially 0
  bool bias = true;       // false: no bias
};

/// Layer normalization over the last axes, with the parameters weight and bias of their shape.
class LayerNorm final : public Module {
 public:
  /// Throws UsageError unless `normalized`, the sizes of the last axes, has at least one, all positive.
  explicit LayerNorm(const Shape& normalized, NormOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Shape normalized_;
  NormOptions options_;
  Variable weight_, bias_;  // undefined without such a parameter
};

/// Group normalization of [N, …, C] over groups of adjacent channels, with the parameters weight and bias
/// [C].
class GroupNorm final : public Module {
 public:
  /// Throws UsageError unless both numbers are positive and `groups` divides `channels`.
  GroupNorm(int groups, int channels, NormOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  int groups_, channels_;
  NormOptions options_;
  Variable weight_, bias_;
};

/// The rows of a weight [num_embeddings, embedding_dim] at indices: i32 […] to […, embedding_dim]. Initial
/// weights are from N(0, 1), as in PyTorch. If the weight has a low-precision copy, the result has its type:
/// this is how mixed precision reaches the layers behind. Rows are rounded after they are chosen, so the
/// gradient is summed in the type of the weight.
class Embedding final : public Module {
 public:
  /// Throws UsageError unless both sizes are positive.
  Embedding(int num_embeddings, int embedding_dim);
  std::string describe() const override;

 private:
  Variable forward(const Variable& indices, const ForwardContext& context) override;
  int num_embeddings_, embedding_dim_;
  Variable weight_;
};

/// Options of ConvTranspose2d. stride, padding and output_padding are as in ConvTranspose2dOptions.
struct ConvTranspose2dLayerOptions {
  int kernel = 2;          // side of the square filter
  int stride = 1;          // on both axes
  int padding = 0;         // on all four sides
  int output_padding = 0;  // less than the stride
  int groups = 1;          // of channels; must divide the numbers of input and of output channels
  bool bias = true;        // whether there is a bias
};

/// A transposed convolution of [N, H, W, in] to [N, H', W', out], with H' = (H - 1) stride - 2 padding +
/// kernel + output_padding. The weight is [in, kernel, kernel, out / groups] in memory, and in checkpoints
/// [in, out / groups, kernel, kernel] as in PyTorch. Initial values are PyTorch's defaults: weight and bias
/// from U(-b, b) with b = 1/sqrt(kernel^2 out / groups), since PyTorch derives the fan-in from axis 1 of
/// the weight.
class ConvTranspose2d final : public Module {
 public:
  /// Throws UsageError unless channels, kernel and stride are positive, the padding is not negative,
  /// output_padding is from 0 to stride - 1, and `groups` divides both numbers of channels.
  ConvTranspose2d(int in_channels, int out_channels, ConvTranspose2dLayerOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  int in_, out_;
  ConvTranspose2dLayerOptions options_;
  Variable weight_, bias_;  // bias_ is undefined without a bias
};

// ---- Transformers (Vaswani et al., arXiv:1706.03762), with PyTorch's parameter names ----

/// Options of MultiheadAttention.
struct MultiheadAttentionOptions {
  bool causal = false;  // position i attends to the positions 0 to i
  double dropout = 0;   // of the probabilities in training, from 0 to less than 1
};

/// Multi-head attention of [N, T, width] to [N, T, width], as torch.nn.MultiheadAttention with batch_first.
/// Called with one input, it attends to the input itself. Called with the list {query [N, T, width], key
/// [N, S, width], value [N, S, width]}, it attends from one sequence to another. Initial values are
/// PyTorch's.
class MultiheadAttention final : public Module {
 public:
  /// Throws UsageError unless both numbers are positive and `heads` divides `width`, and as Dropout does.
  MultiheadAttention(int width, int heads, MultiheadAttentionOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  Variables forward_all(const Variables& inputs, const ForwardContext& context) override;
  /// Returns the part of the input projection that begins at row `first` and has `rows` rows.
  Variable project(const Variable& x, std::int64_t first, std::int64_t rows) const;
  /// Returns the output for projected queries, keys and values [N, T or S, width].
  Variable attend(const Variable& q, const Variable& k, const Variable& v,
                  const ForwardContext& context) const;
  int width_, heads_;
  MultiheadAttentionOptions options_;
  std::shared_ptr<Module> dropout_;  // null without dropout
  Variable in_weight_, in_bias_, out_weight_, out_bias_;
};

/// Options of TransformerEncoderLayer.
struct TransformerEncoderLayerOptions {
  int hidden = 2048;    // width between the two linear layers
  bool causal = false;  // as in MultiheadAttentionOptions
};

/// A layer of a transformer on [N, T, width], with normalization first and GELU, as
/// torch.nn.TransformerEncoderLayer with norm_first, activation="gelu", batch_first and without dropout:
/// x + attention(norm1(x)), and then x + linear2(gelu(linear1(norm2(x)))).
class TransformerEncoderLayer final : public Module {
 public:
  /// Throws UsageError as MultiheadAttention does, and unless `hidden` is positive.
  TransformerEncoderLayer(int width, int heads, TransformerEncoderLayerOptions options = {});
  std::string describe() const override;

 private:
  Variable forward(const Variable& x, const ForwardContext& context) override;
  int width_, heads_;
  TransformerEncoderLayerOptions options_;
  std::shared_ptr<Module> attention_, linear1_, linear2_, norm1_, norm2_;
};

}  // namespace convoy::nn
