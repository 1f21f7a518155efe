#include "convoy/engine/nn/layers.h"

#include <algorithm>
#include <cmath>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/norm_conv2d.h"

namespace convoy::nn {
namespace {

void check_channels(const Shape& input, std::int64_t expected) {
  check(input.rank() == 4, "input {}, expected images [N, H, W, C]", input.text());
  check(input[3] == expected, "input {} has {} channels, expected {}", input.text(), input[3], expected);
}

void check_pool(std::string_view layer, Pool2dOptions options) {
  check(options.kernel > 0 && options.stride > 0,
        "{} with kernel {} and stride {}: expected positive numbers", layer, options.kernel, options.stride);
  check(options.padding >= 0 && options.padding <= options.kernel / 2,
        "{} with kernel {}: found padding {}, expected 0 to {}, which is half of the kernel", layer,
        options.kernel, options.padding, options.kernel / 2);
}

std::string window(int kernel, int stride, int padding) {
  std::string text = fmt::format("{}x{}", kernel, kernel);
  if (stride != 1) text += fmt::format(" stride {}", stride);
  if (padding != 0) text += fmt::format(" padding {}", padding);
  return text;
}

}  // namespace

Conv2d::Conv2d(int in_channels, int out_channels, Conv2dLayerOptions options)
    : in_(in_channels), out_(out_channels), options_(options) {
  check(in_ > 0 && out_ > 0 && options.kernel > 0 && options.stride > 0,
        "Conv2d {} -> {} with kernel {} and stride {}: expected positive numbers", in_, out_, options.kernel,
        options.stride);
  check(options.padding >= 0, "Conv2d {} -> {}: found padding {}, expected at least 0", in_, out_,
        options.padding);
  const double area = static_cast<double>(options.kernel) * options.kernel;
  check(options.groups > 0 && in_ % options.groups == 0 && out_ % options.groups == 0,
        "Conv2d {} -> {}: found {} groups, expected a divisor of both numbers of channels", in_, out_,
        options.groups);
  const int group_inputs = in_ / options.groups;
  check(!options.dirac || options.groups == 1,
        "Conv2d {} -> {}: found dirac with {} groups, expected 1 group", in_, out_, options.groups);
  const double bound = 1 / std::sqrt(area * group_inputs);
  Init init = options.kaiming_fan_out ? Init::normal(std::sqrt(2 / (area * out_))) : Init::uniform(bound);
  init.dirac = options.dirac;
  weight_ = add_parameter("weight", {out_, options.kernel, options.kernel, group_inputs},
                          ParameterKind::filter, init);
  if (options.bias) bias_ = add_parameter("bias", {out_}, ParameterKind::bias, Init::uniform(bound));
}

Variable Conv2d::forward(const Variable& x, const ForwardContext& context) {
  return forward_with(x, context, {});
}

Variable Conv2d::forward_with(const Variable& x, const ForwardContext&, const Epilogue& epilogue) {
  check_channels(x.shape(), in_);
  return conv2d(x, for_input(weight_, x), for_input(bias_, x), op_options(epilogue.relu()));
}

Conv2dOptions Conv2d::op_options(bool relu) const {
  return {.stride = options_.stride, .padding = options_.padding, .groups = options_.groups, .relu = relu};
}

std::optional<Shape> Conv2d::output_shape(const Shape& input) const {
  if (input.rank() != 4 || input[3] != in_) return std::nullopt;
  const std::int64_t room = 2 * std::int64_t{options_.padding} - options_.kernel;
  if (std::min(input[1], input[2]) + room < 0) return std::nullopt;
  return Shape{input[0], (input[1] + room) / options_.stride + 1, (input[2] + room) / options_.stride + 1,
               out_};
}

bool Conv2d::fuses_batch_norm(const Variable& x, const Shape& input, bool has_norm) const {
  return on(x.context().stream(), [&](auto& s) {
    return kernels::fuses_norm_conv2d(s, x.dtype(), input, weight_.shape(), op_options(), has_norm);
  });
}

BatchNormInput Conv2d::with_statistics(const Variable& x, const BatchNorm2d& next) const {
  check_channels(x.shape(), in_);
  return conv2d_statistics(x, for_input(weight_, x), next.arguments(), op_options());
}

BatchNormInput Conv2d::with_statistics(const BatchNormInput& x, const BatchNorm2d& next) const {
  check_channels(x.x.shape(), in_);
  return norm_conv2d(x, for_input(weight_, x.x), next.arguments(), op_options());
}

std::string Conv2d::describe() const {
  return fmt::format("Conv2d {} -> {}, {}{}", in_, out_,
                     window(options_.kernel, options_.stride, options_.padding),
                     options_.groups == 1 ? "" : fmt::format(" groups {}", options_.groups));
}

Linear::Linear(int in_features, int out_features, bool bias) : in_(in_features), out_(out_features) {
  check(in_ > 0 && out_ > 0, "Linear {} -> {}: expected positive sizes", in_, out_);
  const double bound = 1 / std::sqrt(static_cast<double>(in_));
  weight_ = add_parameter("weight", {out_, in_}, ParameterKind::weight, Init::uniform(bound));
  if (bias) bias_ = add_parameter("bias", {out_}, ParameterKind::bias, Init::uniform(bound));
}

Variable Linear::forward(const Variable& x, const ForwardContext& context) {
  return forward_with(x, context, {});
}

Variable Linear::forward_with(const Variable& x, const ForwardContext&, const Epilogue& epilogue) {
  check(x.shape().rank() >= 2 && x.shape()[-1] == in_, "input {}, expected [N, …, {}]", x.shape().text(),
        in_);
  return linear(x, for_input(weight_, x), for_input(bias_, x), epilogue.relu());
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

Variable BatchNorm2d::forward(const Variable& x, const ForwardContext& context) {
  return forward_with(x, context, {});
}

Variable BatchNorm2d::forward_with(const Variable& x, const ForwardContext& context,
                                   const Epilogue& epilogue) {
  check_channels(x.shape(), channels_);
  BatchNormOptions options = options_;
  if (epilogue.activation != NormActivation::none) options.activation = epilogue.activation;
  const bool uses_batch = context.training && !is_frozen_;
  if (uses_batch && group_)
    return sync_batch_norm(x, scale(), bias_, running(), group_, options, epilogue.residual);
  return batch_norm(x, scale(), bias_, running(), uses_batch, options, epilogue.residual);
}

std::string BatchNorm2d::describe() const {
  return fmt::format("BatchNorm2d {}{}", channels_, fixed_scale_ ? ", scale 1" : "");
}

Variable Activation::forward(const Variable& x, const ForwardContext&) {
  switch (kind_) {
    case ActivationKind::relu: return relu(x);
    case ActivationKind::gelu: return gelu(x);
    case ActivationKind::silu: return silu(x);
    case ActivationKind::hardswish: return hardswish(x);
    case ActivationKind::tanh: return tanh(x);
    case ActivationKind::sigmoid: return sigmoid(x);
  }
  fail<UsageError>("Activation: unknown kind");
}

std::string Activation::describe() const {
  switch (kind_) {
    case ActivationKind::relu: return "ReLU";
    case ActivationKind::gelu: return "GELU";
    case ActivationKind::silu: return "SiLU";
    case ActivationKind::hardswish: return "Hardswish";
    case ActivationKind::tanh: return "Tanh";
    case ActivationKind::sigmoid: return "Sigmoid";
  }
  return "?";
}

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

MaxPool2d::MaxPool2d(Pool2dOptions options) : options_(options) { check_pool("MaxPool2d", options); }

Variable MaxPool2d::forward(const Variable& x, const ForwardContext&) { return max_pool2d(x, options_); }

std::string MaxPool2d::describe() const {
  return "MaxPool2d " + window(options_.kernel, options_.stride, options_.padding);
}

AvgPool2d::AvgPool2d(Pool2dOptions options) : options_(options) { check_pool("AvgPool2d", options); }

Variable AvgPool2d::forward(const Variable& x, const ForwardContext&) { return avg_pool2d(x, options_); }

std::string AvgPool2d::describe() const {
  return "AvgPool2d " + window(options_.kernel, options_.stride, options_.padding);
}

Variable GlobalAvgPool2d::forward(const Variable& x, const ForwardContext&) { return global_avg_pool2d(x); }

std::string GlobalAvgPool2d::describe() const { return "GlobalAvgPool2d"; }

Variable Flatten::forward(const Variable& x, const ForwardContext&) { return flatten(x); }

std::string Flatten::describe() const { return "Flatten"; }

}  // namespace convoy::nn
