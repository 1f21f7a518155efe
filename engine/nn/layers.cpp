#include "engine/nn/layers.h"

#include <cmath>

#include "kernels/base/check.h"

namespace convoy {
namespace {

void check_image(const Shape& input) {
  check(input.rank() == 4, "input {}, expected images [N, H, W, C]", input.text());
}

void check_channels(const Shape& input, std::int64_t expected) {
  check_image(input);
  check(input[3] == expected, "input {} has {} channels, expected {}", input.text(), input[3], expected);
}

Shape pooled(const Shape& input, Pool2dOptions options) {
  check_image(input);
  return {input[0], window_output_size(input[1], options.kernel, options.stride, options.padding),
          window_output_size(input[2], options.kernel, options.stride, options.padding), input[3]};
}

std::string window(int kernel, int stride, int padding) {
  std::string text = fmt::format("{}x{}", kernel, kernel);
  if (stride != 1) text += fmt::format(" stride {}", stride);
  if (padding != 0) text += fmt::format(" padding {}", padding);
  return text;
}

/// Returns the parameter cast to the type of x if that is f16 or bf16. The parameter may be undefined.
Variable for_input(const Variable& parameter, const Variable& x) {
  return parameter.defined() && is_half(x.dtype()) ? cast(parameter, x.dtype()) : parameter;
}

}  // namespace

Conv2d::Conv2d(int in_channels, int out_channels, Conv2dLayerOptions options)
    : in_(in_channels), out_(out_channels), options_(options) {
  check(in_ > 0 && out_ > 0 && options.kernel > 0, "Conv2d {} -> {}, kernel {}: expected positive sizes", in_,
        out_, options.kernel);
  const double area = static_cast<double>(options.kernel) * options.kernel;
  const double bound = 1 / std::sqrt(area * in_);
  weight_ = add_parameter(
      "weight", {out_, options.kernel, options.kernel, in_}, ParameterKind::filter,
      options.kaiming_fan_out ? Init::normal(std::sqrt(2 / (area * out_))) : Init::uniform(bound));
  if (options.bias) bias_ = add_parameter("bias", {out_}, ParameterKind::bias, Init::uniform(bound));
}

Variable Conv2d::forward(const Variable& x, const ForwardContext& context) {
  return forward_with(x, context, {});
}

Variable Conv2d::forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) {
  if (epilogue.residual.defined()) return Module::forward_with(x, context, epilogue);
  return conv2d(x, for_input(weight_, x), for_input(bias_, x),
                {.stride = options_.stride, .padding = options_.padding, .relu = epilogue.relu});
}

std::string Conv2d::describe() const {
  return fmt::format("Conv2d {} -> {}, {}", in_, out_,
                     window(options_.kernel, options_.stride, options_.padding));
}

Module::Inferred Conv2d::infer_layer(const Shape& input) const {
  check_channels(input, in_);
  const std::int64_t kernel = options_.kernel;
  const Shape output{input[0], window_output_size(input[1], kernel, options_.stride, options_.padding),
                     window_output_size(input[2], kernel, options_.stride, options_.padding), out_};
  return {output, 2 * output.numel() * kernel * kernel * in_};
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

Variable Linear::forward_with(const Variable& x, const ForwardContext& context, const Epilogue& epilogue) {
  if (epilogue.residual.defined()) return Module::forward_with(x, context, epilogue);
  return linear(x, for_input(weight_, x), for_input(bias_, x), epilogue.relu);
}

std::string Linear::describe() const { return fmt::format("Linear {} -> {}", in_, out_); }

Module::Inferred Linear::infer_layer(const Shape& input) const {
  check(input.rank() == 2 && input[1] == in_, "input {}, expected [N, {}]", input.text(), in_);
  return {{input[0], out_}, 2 * input[0] * in_ * out_};
}

BatchNorm2d::BatchNorm2d(int channels, BatchNormOptions options) : channels_(channels), options_(options) {
  check(channels > 0, "BatchNorm2d {}: expected a positive number of channels", channels);
  weight_ = add_parameter("weight", {channels}, ParameterKind::norm_scale, Init::constant(1));
  bias_ = add_parameter("bias", {channels}, ParameterKind::norm_shift, Init::constant(0));
  running_mean_ = add_buffer("running_mean", {channels}, 0);
  running_var_ = add_buffer("running_var", {channels}, 1);
}

Variable BatchNorm2d::forward(const Variable& x, const ForwardContext& context) {
  return forward_with(x, context, {});
}

Variable BatchNorm2d::forward_with(const Variable& x, const ForwardContext& context,
                                   const Epilogue& epilogue) {
  // This layer's own ReLU precedes the addition of the residual, but the kernel's follows it.
  if (options_.relu && epilogue.residual.defined()) return Module::forward_with(x, context, epilogue);
  BatchNormOptions options = options_;
  options.relu = options.relu || epilogue.relu;
  if (context.training && group_)
    return sync_batch_norm(x, weight_, bias_, running(), group_, options, epilogue.residual);
  return batch_norm(x, weight_, bias_, running(), context.training, options, epilogue.residual);
}

std::string BatchNorm2d::describe() const { return fmt::format("BatchNorm2d {}", channels_); }

Module::Inferred BatchNorm2d::infer_layer(const Shape& input) const {
  check_channels(input, channels_);
  return {input, 0};
}

Variable Activation::forward(const Variable& x, const ForwardContext&) {
  switch (kind_) {
    case ActivationKind::relu: return relu(x);
    case ActivationKind::gelu: return gelu(x);
    case ActivationKind::silu: return silu(x);
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
    case ActivationKind::tanh: return "Tanh";
    case ActivationKind::sigmoid: return "Sigmoid";
  }
  return "?";
}

Variable Dropout::forward(const Variable& x, const ForwardContext& context) {
  if (!context.training || p_ == 0) return x;
  // One random stream per (layer, epoch): up to 64 layers and 2^18 epochs.
  Random random{.seed = context.seed, .purpose = RandomPurpose::dropout, .stream = layer_ << 18};
  if (!context.device_epoch.defined()) random.stream ^= static_cast<std::uint32_t>(context.epoch);
  return dropout(x, context.sample_ids, p_, random, context.device_epoch);
}

std::string Dropout::describe() const { return fmt::format("Dropout {}", p_); }

Variable MaxPool2d::forward(const Variable& x, const ForwardContext&) { return max_pool2d(x, options_); }

std::string MaxPool2d::describe() const {
  return "MaxPool2d " + window(options_.kernel, options_.stride, options_.padding);
}

Module::Inferred MaxPool2d::infer_layer(const Shape& input) const { return {pooled(input, options_), 0}; }

Variable AvgPool2d::forward(const Variable& x, const ForwardContext&) { return avg_pool2d(x, options_); }

std::string AvgPool2d::describe() const {
  return "AvgPool2d " + window(options_.kernel, options_.stride, options_.padding);
}

Module::Inferred AvgPool2d::infer_layer(const Shape& input) const { return {pooled(input, options_), 0}; }

Variable GlobalAvgPool2d::forward(const Variable& x, const ForwardContext&) { return global_avg_pool2d(x); }

std::string GlobalAvgPool2d::describe() const { return "GlobalAvgPool2d"; }

Module::Inferred GlobalAvgPool2d::infer_layer(const Shape& input) const {
  check_image(input);
  return {{input[0], input[3]}, 0};
}

Variable Flatten::forward(const Variable& x, const ForwardContext&) { return flatten(x); }

std::string Flatten::describe() const { return "Flatten"; }

Module::Inferred Flatten::infer_layer(const Shape& input) const {
  check(input.rank() >= 2, "input {}, expected [N, …]", input.text());
  std::int64_t rest = 1;
  for (int axis = 1; axis < input.rank(); ++axis) rest *= input[axis];
  return {{input[0], rest}, 0};
}

}  // namespace convoy
