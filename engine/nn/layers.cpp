#include "convoy/engine/nn/layers.h"

#include <cmath>

#include "convoy/kernels/base/check.h"

namespace convoy::nn {
namespace {

void check_channels(const Shape& input, std::int64_t expected) {
  check(input.rank() == 4, "input {}, expected images [N, H, W, C]", input.text());
  check(input[3] == expected, "input {} has {} channels, expected {}", input.text(), input[3], expected);
}

/// Returns whether both numbers are at least `least`.
bool are_from(int least, Size2d size) { return size.height >= least && size.width >= least; }

std::string window(Size2d kernel, Size2d stride, Size2d padding) {
  std::string text = fmt::format("{}x{}", kernel.height, kernel.width);
  if (stride != 1) text += " stride " + stride.text();
  if (padding != 0) text += " padding " + (padding == kSamePadding ? "same" : padding.text());
  return text;
}

/// Makes the description of a pooling layer, and checks its options.
std::string pooling(const char* layer, const Pool2dOptions& options) {
  const Size2d kernel = options.kernel, half(kernel.height / 2, kernel.width / 2);
  check(are_from(1, kernel) && are_from(1, options.stride),
        "{} with kernel {} and stride {}: expected positive numbers", layer, kernel.text(),
        options.stride.text());
  check(are_from(0, options.padding) && options.padding.height <= half.height &&
            options.padding.width <= half.width,
        "{} with kernel {}: found padding {}, expected 0 to {}, which is half of the kernel", layer,
        kernel.text(), options.padding.text(), half.text());
  return fmt::format("{} {}{}{}", layer, window(kernel, options.stride, options.padding),
                     options.ceil_mode ? " ceil mode" : "",
                     options.count_include_pad ? "" : " padding not counted");
}

/// The name, the op and the fusible activation of an activation.
struct ActivationRow {
  const char* name;
  Variable (*op)(const Variable& x);
  FusedActivation fusible = FusedActivation::none;
};

ActivationRow activation_row(ActivationKind kind) {
  switch (kind) {
    case ActivationKind::relu: return {"ReLU", relu, FusedActivation::relu};
    case ActivationKind::gelu: return {"GELU", gelu, FusedActivation::gelu};
    case ActivationKind::silu: return {"SiLU", silu};
    case ActivationKind::hardswish: return {"Hardswish", hardswish};
    case ActivationKind::tanh: return {"Tanh", tanh};
    case ActivationKind::sigmoid: return {"Sigmoid", sigmoid};
  }
  fail<UsageError>("Activation: found the unknown kind {}", static_cast<int>(kind));
}

/// Checks the options that both kinds of convolution have. `layer` is its name with the numbers of channels.
template <class Options>
void check_convolution(const std::string& layer, int in, int out, const Options& options) {
  const Size2d kernel = options.kernel, stride = options.stride, padding = options.padding;
  check(in > 0 && out > 0 && are_from(1, kernel) && are_from(1, stride),
        "{} with kernel {} and stride {}: expected positive numbers", layer, kernel.text(), stride.text());
  check(padding == kSamePadding || are_from(0, padding), "{}: found padding {}, expected at least 0", layer,
        padding.text());
  check(options.groups > 0 && in % options.groups == 0 && out % options.groups == 0,
        "{}: found {} groups, expected a divisor of both numbers of channels", layer, options.groups);
}

/// Makes the description of an adaptive layer.
std::string adaptive(const char* layer, Size2d size) {
  check(are_from(1, size), "{}: found the size {}, expected at least 1", layer, size.text());
  return fmt::format("{} {}x{}", layer, size.height, size.width);
}

}  // namespace

Conv2d::Conv2d(int in_channels, int out_channels, Conv2dLayerOptions options)
    : in_(in_channels), out_(out_channels), options_(options) {
  const std::string layer = fmt::format("Conv2d {} -> {}", in_, out_);
  check_convolution(layer, in_, out_, options);
  check(are_from(1, options.dilation), "{}: found dilation {}, expected at least 1", layer,
        options.dilation.text());
  check(options.padding != kSamePadding || options.stride == 1,
        "{}: found stride {} with kSamePadding, expected 1", layer, options.stride.text());
  const double area = static_cast<double>(options.kernel.height) * options.kernel.width;
  const int group_inputs = in_ / options.groups;
  check(!options.dirac || options.groups == 1, "{}: found dirac with {} groups, expected 1 group", layer,
        options.groups);
  const double bound = 1 / std::sqrt(area * group_inputs);
  Init init = options.kaiming_fan_out ? Init::normal(std::sqrt(2 / (area * out_))) : Init::uniform(bound);
  init.dirac = options.dirac;
  weight_ = add_parameter("weight", {out_, options.kernel.height, options.kernel.width, group_inputs},
                          ParameterKind::filter, init);
  if (options.bias) bias_ = add_parameter("bias", {out_}, ParameterKind::bias, Init::uniform(bound));
}

Variable Conv2d::forward_with(const Variable& x, const ForwardContext&, const Epilogue& epilogue) {
  check_channels(x.shape(), in_);
  return conv2d(x, for_input(weight_, x), for_input(bias_, x),
                {.stride = options_.stride,
                 .padding = options_.padding,
                 .dilation = options_.dilation,
                 .groups = options_.groups,
                 .relu = epilogue.activation == FusedActivation::relu,
                 .padding_mode = options_.padding_mode});
}

std::string Conv2d::describe() const {
  constexpr const char* kModes[] = {"", " reflect", " replicate", " circular"};  // by PaddingMode
  std::string text = fmt::format("Conv2d {} -> {}, {}{}", in_, out_,
                                 window(options_.kernel, options_.stride, options_.padding),
                                 kModes[static_cast<int>(options_.padding_mode)]);
  if (options_.dilation != 1) text += " dilation " + options_.dilation.text();
  if (options_.groups != 1) text += fmt::format(" groups {}", options_.groups);
  return text;
}

Linear::Linear(int in_features, int out_features, bool bias) : in_(in_features), out_(out_features) {
  check(in_ > 0 && out_ > 0, "Linear {} -> {}: expected positive sizes", in_, out_);
  const double bound = 1 / std::sqrt(static_cast<double>(in_));
  weight_ = add_parameter("weight", {out_, in_}, ParameterKind::weight, Init::uniform(bound));
  if (bias) bias_ = add_parameter("bias", {out_}, ParameterKind::bias, Init::uniform(bound));
}

Variable Linear::forward_with(const Variable& x, const ForwardContext&, const Epilogue& epilogue) {
  check(x.shape().rank() >= 2 && x.shape()[-1] == in_, "input {}, expected [N, …, {}]", x.shape().text(),
        in_);
  return linear(x, for_input(weight_, x), for_input(bias_, x), epilogue.activation == FusedActivation::relu);
}

std::string Linear::describe() const { return fmt::format("Linear {} -> {}", in_, out_); }

BatchNorm2d::BatchNorm2d(int channels, BatchNormOptions options, bool train_scale)
    : channels_(channels), options_(options) {
  check(channels > 0, "BatchNorm2d {}: expected a positive number of channels", channels);
  if (train_scale)
    weight_ = add_parameter("weight", {channels}, ParameterKind::norm_scale, Init::constant(1));
  else
    fixed_scale_ = add_buffer("weight", {channels}, Init::constant(1), ParameterKind::norm_scale);
  bias_ = add_parameter("bias", {channels}, ParameterKind::norm_shift, Init::constant(0));
  running_mean_ = add_buffer("running_mean", {channels}, Init::constant(0));
  running_var_ = add_buffer("running_var", {channels}, Init::constant(1));
}

bool BatchNorm2d::fuses(const Epilogue& epilogue) const {
  if (options_.activation != FusedActivation::none)
    return options_.activation == FusedActivation::relu ? epilogue.is_at_most(FusedActivation::relu)
                                                        : epilogue.is_empty();
  return epilogue.activation != FusedActivation::gelu || !epilogue.residual.defined();
}

Variable BatchNorm2d::forward_with(const Variable& x, const ForwardContext& context,
                                   const Epilogue& epilogue) {
  check_channels(x.shape(), channels_);
  BatchNormOptions options = options_;
  if (epilogue.activation != FusedActivation::none) options.activation = epilogue.activation;
  const bool uses_batch = context.training && !is_frozen_;
  const Variable scale = fixed_scale_ ? Variable(*fixed_scale_) : weight_;
  BatchNormStatistics statistics = running();
  statistics.batch = context.norm_batch;
  if (uses_batch && group_)
    return sync_batch_norm(x, scale, bias_, statistics, group_, options, epilogue.residual);
  return batch_norm(x, scale, bias_, statistics, uses_batch, options, epilogue.residual);
}

std::string BatchNorm2d::describe() const {
  return fmt::format("BatchNorm2d {}{}", channels_, fixed_scale_ ? ", scale 1" : "");
}

Activation::Activation(ActivationKind kind)
    : Function(activation_row(kind).name, activation_row(kind).op), fusible_(activation_row(kind).fusible) {}

Dropout::Dropout(double p) : p_(p) {
  check(p >= 0 && p < 1, "Dropout: found p = {}, expected 0 <= p < 1", p);
}

Variable Dropout::forward(const Variable& x, const ForwardContext& context) {
  if (!context.training || p_ == 0) return x;
  // Each layer has a key of its own: its hash changes the upper half of the seed.
  Random random{.seed = context.seed ^ std::uint64_t{hash_of(path())} << 32,
                .purpose = RandomPurpose::dropout};
  if (!context.device_epoch.defined()) random.stream = static_cast<std::uint32_t>(context.epoch);
  return dropout(x, context.sample_ids, p_, random, context.device_epoch);
}

std::string Dropout::describe() const { return fmt::format("Dropout {}", p_); }

MaxPool2d::MaxPool2d(Pool2dOptions options)
    : Function(pooling("MaxPool2d", options),
               [options](const Variable& x) { return max_pool2d(x, options); }) {}

AvgPool2d::AvgPool2d(Pool2dOptions options)
    : Function(pooling("AvgPool2d", options),
               [options](const Variable& x) { return avg_pool2d(x, options); }) {}

AdaptiveMaxPool2d::AdaptiveMaxPool2d(Size2d size)
    : Function(adaptive("AdaptiveMaxPool2d", size),
               [size](const Variable& x) { return adaptive_max_pool2d(x, size); }) {}

AdaptiveAvgPool2d::AdaptiveAvgPool2d(Size2d size)
    : Function(adaptive("AdaptiveAvgPool2d", size),
               [size](const Variable& x) { return adaptive_avg_pool2d(x, size); }) {}

LayerNorm::LayerNorm(const Shape& normalized, NormOptions options)
    : normalized_(normalized), options_(options) {
  check(normalized.rank() > 0 && normalized.numel() > 0, "LayerNorm {}: expected positive sizes",
        normalized.text());
  if (!options.affine) return;
  weight_ = add_parameter("weight", normalized, ParameterKind::norm_scale, Init::constant(1));
  if (options.bias) bias_ = add_parameter("bias", normalized, ParameterKind::norm_shift, Init::constant(0));
}

Variable LayerNorm::forward(const Variable& x, const ForwardContext&) {
  return layer_norm(x, normalized_, weight_, bias_, options_.epsilon);
}

std::string LayerNorm::describe() const { return fmt::format("LayerNorm {}", normalized_.text()); }

GroupNorm::GroupNorm(int groups, int channels, NormOptions options)
    : groups_(groups), channels_(channels), options_(options) {
  check(groups > 0 && channels > 0 && channels % groups == 0,
        "GroupNorm {} of {} channels: expected a positive divisor of the number of channels", groups,
        channels);
  if (!options.affine) return;
  weight_ = add_parameter("weight", {channels}, ParameterKind::norm_scale, Init::constant(1));
  if (options.bias) bias_ = add_parameter("bias", {channels}, ParameterKind::norm_shift, Init::constant(0));
}

Variable GroupNorm::forward(const Variable& x, const ForwardContext&) {
  check(x.shape().rank() >= 2 && x.shape()[-1] == channels_, "input {}, expected [N, …, {}]",
        x.shape().text(), channels_);
  return group_norm(x, groups_, weight_, bias_, options_.epsilon);
}

std::string GroupNorm::describe() const { return fmt::format("GroupNorm {} of {}", groups_, channels_); }

Embedding::Embedding(int num_embeddings, int embedding_dim)
    : num_embeddings_(num_embeddings), embedding_dim_(embedding_dim) {
  check(num_embeddings > 0 && embedding_dim > 0, "Embedding {} x {}: expected positive sizes", num_embeddings,
        embedding_dim);
  weight_ = add_parameter("weight", {num_embeddings, embedding_dim}, ParameterKind::weight, Init::normal(1));
}

Variable Embedding::forward(const Variable& indices, const ForwardContext&) {
  check(indices.dtype() == DType::i32, "input is {} {}, expected indices of type i32",
        to_string(indices.dtype()), indices.shape().text());
  const Variable rows = embedding(weight_, indices.value());
  const Tensor& copy = weight_.low_precision_copy();
  return copy.defined() ? cast(rows, copy.dtype()) : rows;
}

std::string Embedding::describe() const {
  return fmt::format("Embedding {} x {}", num_embeddings_, embedding_dim_);
}

ConvTranspose2d::ConvTranspose2d(int in_channels, int out_channels, ConvTranspose2dLayerOptions options)
    : in_(in_channels), out_(out_channels), options_(options) {
  const std::string layer = fmt::format("ConvTranspose2d {} -> {}", in_, out_);
  check_convolution(layer, in_, out_, options);
  check(options.output_padding >= 0 && options.output_padding < options.stride,
        "{}: found output padding {}, expected 0 to {}, which is less than the stride", layer,
        options.output_padding, options.stride - 1);
  const int group_outputs = out_ / options.groups;
  const double bound = 1 / (options.kernel * std::sqrt(static_cast<double>(group_outputs)));
  weight_ = add_parameter("weight", {in_, options.kernel, options.kernel, group_outputs},
                          ParameterKind::filter, Init::uniform(bound));
  if (options.bias) bias_ = add_parameter("bias", {out_}, ParameterKind::bias, Init::uniform(bound));
}

Variable ConvTranspose2d::forward(const Variable& x, const ForwardContext&) {
  check_channels(x.shape(), in_);
  return conv2d_transpose(x, for_input(weight_, x), for_input(bias_, x),
                          {.stride = options_.stride,
                           .padding = options_.padding,
                           .output_padding = options_.output_padding,
                           .groups = options_.groups});
}

std::string ConvTranspose2d::describe() const {
  std::string text = fmt::format("ConvTranspose2d {} -> {}, {}", in_, out_,
                                 window(options_.kernel, options_.stride, options_.padding));
  if (options_.output_padding != 0) text += fmt::format(" output padding {}", options_.output_padding);
  if (options_.groups != 1) text += fmt::format(" groups {}", options_.groups);
  return text;
}

MultiheadAttention::MultiheadAttention(int width, int heads, MultiheadAttentionOptions options)
    : width_(width), heads_(heads), options_(options) {
  check(width > 0 && heads > 0 && width % heads == 0,
        "MultiheadAttention of width {}: found {} heads, expected a positive divisor of the width", width,
        heads);
  // Xavier's bound (Glorot and Bengio, 2010) for the three projections as one matrix.
  const double bound = std::sqrt(6.0 / (4.0 * width));
  in_weight_ =
      add_parameter("in_proj_weight", {3 * width, width}, ParameterKind::weight, Init::uniform(bound));
  in_bias_ = add_parameter("in_proj_bias", {3 * width}, ParameterKind::bias, Init::constant(0));
  out_weight_ = add_parameter("out_proj.weight", {width, width}, ParameterKind::weight,
                              Init::uniform(1 / std::sqrt(static_cast<double>(width))));
  out_bias_ = add_parameter("out_proj.bias", {width}, ParameterKind::bias, Init::constant(0));
  if (options.dropout != 0) dropout_ = add_child("dropout", std::make_shared<Dropout>(options.dropout));
}

std::string MultiheadAttention::describe() const {
  return fmt::format("MultiheadAttention {}, {} heads{}", width_, heads_, options_.causal ? ", causal" : "");
}

Variable MultiheadAttention::forward(const Variable& x, const ForwardContext& context) {
  const std::vector<Variable> qkv = chunk(project(x, 0, 3 * width_), 3, -1);
  return attend(qkv[0], qkv[1], qkv[2], context);
}

Variables MultiheadAttention::forward_all(const Variables& inputs, const ForwardContext& context) {
  if (inputs.size() == 1) return {forward(inputs[0], context)};
  check(inputs.size() == 3, "found {} inputs, expected 1, or 3: query, key and value", inputs.size());
  return {attend(project(inputs[0], 0, width_), project(inputs[1], width_, width_),
                 project(inputs[2], 2 * width_, width_), context)};
}

Variable MultiheadAttention::project(const Variable& x, std::int64_t first, std::int64_t rows) const {
  check(x.shape().rank() == 3 && x.shape()[2] == width_, "input {}, expected [N, T, {}]", x.shape().text(),
        width_);
  const bool is_whole = rows == 3 * width_;
  return linear(x, for_input(is_whole ? in_weight_ : slice(in_weight_, 0, first, first + rows), x),
                for_input(is_whole ? in_bias_ : slice(in_bias_, 0, first, first + rows), x));
}

Variable MultiheadAttention::attend(const Variable& q, const Variable& k, const Variable& v,
                                    const ForwardContext& context) const {
  // [N, T, width] to [N, heads, T, width / heads]
  const auto split = [&](const Variable& x) {
    const Shape& shape = x.shape();
    return permute(reshape(x, {shape[0], shape[1], heads_, width_ / heads_}), {0, 2, 1, 3});
  };
  AttentionOptions options{.causal = options_.causal};
  if (dropout_ != nullptr && context.training)
    options.dropout = [&](const Variable& p) { return (*dropout_)(p, context); };
  const Variable y = scaled_dot_product_attention(split(q), split(k), split(v), options);
  const Variable joined = reshape(permute(y, {0, 2, 1, 3}), {q.shape()[0], q.shape()[1], width_});
  return linear(joined, for_input(out_weight_, q), for_input(out_bias_, q));
}

TransformerEncoderLayer::TransformerEncoderLayer(int width, int heads, TransformerEncoderLayerOptions options)
    : width_(width),
      heads_(heads),
      options_(options),
      attention_(
          add_child("self_attn", std::make_shared<MultiheadAttention>(
                                     width, heads, MultiheadAttentionOptions{.causal = options.causal}))),
      linear1_(add_child("linear1", std::make_shared<Linear>(width, options.hidden))),
      linear2_(add_child("linear2", std::make_shared<Linear>(options.hidden, width))),
      norm1_(add_child("norm1", std::make_shared<LayerNorm>(Shape{width}))),
      norm2_(add_child("norm2", std::make_shared<LayerNorm>(Shape{width}))) {}

std::string TransformerEncoderLayer::describe() const {
  return fmt::format("TransformerEncoderLayer {}, {} heads, hidden {}{}", width_, heads_, options_.hidden,
                     options_.causal ? ", causal" : "");
}

Variable TransformerEncoderLayer::forward(const Variable& x, const ForwardContext& context) {
  const Variable y = x + (*attention_)((*norm1_)(x, context), context);
  return y + (*linear2_)(gelu((*linear1_)((*norm2_)(y, context), context)), context);
}

}  // namespace convoy::nn
