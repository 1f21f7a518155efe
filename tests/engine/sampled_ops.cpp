#include "tests/engine/sampled_ops.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/testing/op_cases/evaluate.h"

namespace convoy::testing {
namespace {

/// Returns the options from `first` on.
template <class T = int>
std::vector<T> from(const Numbers& options, std::ptrdiff_t first) {
  return {options.begin() + first, options.end()};
}

std::vector<int> axes_of(const Numbers& options) { return from(options, 0); }

Shape shape_of(const Numbers& options) { return Shape(from<std::int64_t>(options, 0)); }

/// Returns x[i], or an undefined variable.
Variable optional(const Variables& x, std::size_t i) { return i < x.size() ? x[i] : Variable(); }

/// Returns the values of x, which are indices or conditions, in another type.
template <class T>
Tensor constant_of(const Variable& x) {
  const Numbers values = values_of(x.value());
  return Tensor::from(std::vector<T>(values.begin(), values.end()), x.shape(), x.value().context());
}

/// Returns the reduction of a loss, the first option; without options, none.
Reduction reduction_of(const Numbers& options) {
  return options.empty() ? Reduction::none : static_cast<Reduction>(options[0]);
}

Pool2dOptions window_of(const Numbers& options) {
  return {.kernel = static_cast<int>(options[0]),
          .stride = static_cast<int>(options[1]),
          .padding = static_cast<int>(options[2])};
}

SampleResult cross_entropy_of(const Variables& x, const Numbers& options) {
  const Tensor labels = Tensor::from(from<std::int32_t>(options, 1), {x[0].shape()[0]}, x[0].context());
  return cross_entropy(x[0], labels, {.smoothing = options[0]});
}

/// A cross-entropy or, with `of_log_p`, the loss of log-probabilities. The options are reduction, smoothing,
/// the label that is ignored and whether there are class weights; then labels, unless the target is the
/// second input. The weights are the last input.
template <bool of_log_p>
SampleResult cross_entropy_with(const Variables& x, const Numbers& options) {
  const std::span<const std::int64_t> sizes = x[0].shape().sizes();
  const bool has_weights = options[3] != 0;
  const Tensor target = x.size() > (has_weights ? 2 : 1)
                            ? x[1].value()
                            : Tensor::from(from<std::int32_t>(options, 4),
                                           Shape(sizes.first(sizes.size() - 1)), x[0].context());
  const CrossEntropyOptions given{.smoothing = options[1],
                                  .reduction = reduction_of(options),
                                  .class_weights = has_weights ? x.back().value() : Tensor(),
                                  .ignore_index = static_cast<std::int32_t>(options[2])};
  const Variable loss = of_log_p ? nll_loss(x[0], target, given) : cross_entropy(x[0], target, given).loss;
  return reshape(loss, {loss.shape().numel()});
}

BatchNormStatistics running_of(const Variable& x) {
  const Shape channels{x.shape()[-1]};
  return {Tensor::zeros(channels, x.dtype(), x.context()), Tensor::full(channels, 1, x.dtype(), x.context())};
}

SampleResult batch_norm_of(const Variables& x, const Numbers&) {
  return batch_norm(x[0], x[1], x[2], running_of(x[0]), /*training=*/true);
}

/// A batch norm of x, scale and shift, with a ReLU and, if there is a fourth input, with a residual.
SampleResult batch_norm_relu_of(const Variables& x, const Numbers&) {
  return batch_norm(x[0], x[1], x[2], running_of(x[0]), /*training=*/true,
                    {.activation = FusedActivation::relu}, x.size() > 3 ? x[3] : Variable());
}

SampleResult batch_norm_with(const Variables& x, const Numbers& options) {
  return batch_norm(x[0], x[1], x[2], {x[3].value(), x[4].value()}, /*training=*/options[0] != 0,
                    {.epsilon = options[1]});
}

SampleResult layer_norm_with(const Variables& x, const Numbers& options) {
  const Shape normalized(from<std::int64_t>(options, 1));
  return layer_norm(x[0], normalized, optional(x, 1), optional(x, 2), options[0]);
}

/// With the condition as the third input, or as options.
SampleResult where_of(const Variables& x, const Numbers& options) {
  if (x.size() > 2) return where(constant_of<std::uint8_t>(x[2]), x[0], x[1]);
  return where(Tensor::from(from<std::uint8_t>(options, 0), x[0].shape(), x[0].context()), x[0], x[1]);
}

SampleResult pad_of(const Variables& x, const Numbers& options) {
  std::vector<Padding> padding;
  for (std::size_t i = 1; i < options.size(); i += 2)
    padding.push_back({static_cast<std::int64_t>(options[i]), static_cast<std::int64_t>(options[i + 1])});
  return pad(x[0], padding, options[0]);
}

/// Joins the elements of all parts.
SampleResult chunk_of(const Variables& x, const Numbers& options) {
  std::vector<Variable> parts = chunk(x[0], axes_of(options)[0], axes_of(options)[1]);
  for (Variable& part : parts) part = reshape(part, {part.value().numel()});
  return concat(parts, 0);
}

SampleResult slice_of(const Variables& x, const Numbers& options) {
  const auto positions = from<std::int64_t>(options, 1);
  return slice(x[0], axes_of(options)[0], positions[0], positions[1], positions[2]);
}

SampleResult conv2d_of(const Variables& x, const Numbers& options) {
  const std::vector<int> at = axes_of(options);
  return conv2d(x[0], x[1], optional(x, 2),
                {.stride = at[0], .padding = at[1], .groups = at.size() > 2 ? at[2] : 1});
}

/// The options are stride, padding and dilation of rows and columns, groups, and whether the padding is kSamePadding.
SampleResult conv2d_with(const Variables& x, const Numbers& options) {
  const std::vector<int> at = axes_of(options);
  return conv2d(x[0], x[1], optional(x, 2),
                {.stride = {at[0], at[1]},
                 .padding = at[7] != 0 ? kSamePadding : Size2d(at[2], at[3]),
                 .dilation = {at[4], at[5]},
                 .groups = at[6]});
}

/// The options are kernel, stride and padding of rows and columns, ceil_mode and count_include_pad.
template <Variable op(const Variable&, Pool2dOptions)>
SampleResult pool2d_with(const Variables& x, const Numbers& options) {
  const std::vector<int> at = axes_of(options);
  return op(x[0], {.kernel = {at[0], at[1]},
                   .stride = {at[2], at[3]},
                   .padding = {at[4], at[5]},
                   .ceil_mode = at[6] != 0,
                   .count_include_pad = at[7] != 0});
}

template <Variable op(const Variable&, Size2d)>
SampleResult adaptive_of(const Variables& x, const Numbers& options) {
  return op(x[0], {axes_of(options)[0], axes_of(options)[1]});
}

SampleResult conv2d_transpose_of(const Variables& x, const Numbers& options) {
  const std::vector<int> at = axes_of(options);
  return conv2d_transpose(x[0], x[1], optional(x, 2),
                          {.stride = at[0], .padding = at[1], .output_padding = at[2], .groups = at[3]});
}

/// With a boolean mask or a bias as the fourth input, as the third option says: 0 without, 1 or 2.
SampleResult attention_with(const Variables& x, const Numbers& options) {
  AttentionOptions given{.causal = options[0] != 0, .scale = options[1]};
  if (options[2] == 1) given.mask = constant_of<std::uint8_t>(x[3]);
  if (options[2] == 2) given.bias = x[3];
  return scaled_dot_product_attention(x[0], x[1], x[2], given);
}

}  // namespace

const std::map<std::string, SampledOp>& ops_by_sample_name() {
  static const std::map<std::string, SampledOp> table = {
      {"relu", {[](auto& x, auto&) { return relu(x[0]); }}},
      {"gelu", {[](auto& x, auto&) { return gelu(x[0]); }, 0, 1, true}},
      {"silu", {[](auto& x, auto&) { return silu(x[0]); }, 0, 1}},
      {"hardswish", {[](auto& x, auto&) { return hardswish(x[0]); }, 0, 1}},
      {"hardsigmoid", {[](auto& x, auto&) { return hardsigmoid(x[0]); }, 0, 1}},
      {"gelu_tanh", {[](auto& x, auto&) { return gelu_tanh(x[0]); }, 0, 1, false, true}},
      {"clamp", {[](auto& x, auto& options) { return clamp(x[0], options[0], options[1]); }}},
      {"hardtanh", {[](auto& x, auto& options) { return hardtanh(x[0], options[0], options[1]); }}},
      {"leaky_relu", {[](auto& x, auto& options) { return leaky_relu(x[0], options[0]); }}},
      {"elu", {[](auto& x, auto& options) { return elu(x[0], options[0]); }, 0, 1}},
      {"softplus", {[](auto& x, auto& options) { return softplus(x[0], options[0], options[1]); }, 0, 1}},
      {"tanh", {[](auto& x, auto&) { return tanh(x[0]); }, 0, 1}},
      {"sigmoid", {[](auto& x, auto&) { return sigmoid(x[0]); }, 0, 1}},
      {"exp", {[](auto& x, auto&) { return exp(x[0]); }}},
      {"log", {[](auto& x, auto&) { return log(x[0]); }}},
      {"sqrt", {[](auto& x, auto&) { return sqrt(x[0]); }}},
      {"abs", {[](auto& x, auto&) { return abs(x[0]); }}},
      {"pow", {[](auto& x, auto& options) { return pow(x[0], options[0]); }}},
      {"neg", {[](auto& x, auto&) { return -x[0]; }}},
      {"add_scalar", {[](auto& x, auto& options) { return x[0] + options[0]; }}},
      {"sub_scalar", {[](auto& x, auto& options) { return x[0] - options[0]; }}},
      {"rsub_scalar", {[](auto& x, auto& options) { return options[0] - x[0]; }}},
      {"mul_scalar", {[](auto& x, auto& options) { return x[0] * options[0]; }}},
      {"div_scalar", {[](auto& x, auto& options) { return x[0] / options[0]; }}},
      {"rdiv_scalar", {[](auto& x, auto& options) { return options[0] / x[0]; }}},
      {"add", {[](auto& x, auto&) { return x[0] + x[1]; }}},
      {"sub", {[](auto& x, auto&) { return x[0] - x[1]; }}},
      {"mul", {[](auto& x, auto&) { return x[0] * x[1]; }}},
      {"div", {[](auto& x, auto&) { return x[0] / x[1]; }}},
      {"maximum", {[](auto& x, auto&) { return maximum(x[0], x[1]); }}},
      {"minimum", {[](auto& x, auto&) { return minimum(x[0], x[1]); }}},
      {"where", {where_of}},
      {"sum", {[](auto& x, auto& options) { return sum(x[0], axes_of(options)); }, 12}},
      {"mean", {[](auto& x, auto& options) { return mean(x[0], axes_of(options)); }, 12}},
      {"variance", {[](auto& x, auto& options) { return variance(x[0], axes_of(options)); }, 64}},
      {"max", {[](auto& x, auto& options) { return max(x[0], axes_of(options)[0]); }}},
      {"min", {[](auto& x, auto& options) { return min(x[0], axes_of(options)[0]); }}},
      {"sum_over", {[](auto& x, auto& options) { return sum(x[0], from(options, 1), options[0] != 0); }}},
      {"mean_over", {[](auto& x, auto& options) { return mean(x[0], from(options, 1), options[0] != 0); }}},
      {"variance_over", {[](auto& x, auto& options) {
         return variance(x[0], from(options, 2), options[0] != 0, options[1] != 0);
       }}},
      {"max_over", {[](auto& x, auto& options) { return max(x[0], axes_of(options)[1], options[0] != 0); }}},
      {"min_over", {[](auto& x, auto& options) { return min(x[0], axes_of(options)[1], options[0] != 0); }}},
      {"argmax", {[](auto& x, auto& options) { return argmax(x[0], axes_of(options)[1], options[0] != 0); }}},
      {"sum_to", {[](auto& x, auto& options) { return sum_to(x[0], shape_of(options)); }}},
      {"reshape", {[](auto& x, auto& options) { return reshape(x[0], shape_of(options)); }}},
      {"permute",
       {[](auto& x, auto& options) { return permute(x[0], std::span<const int>(axes_of(options))); }}},
      {"transpose",
       {[](auto& x, auto& options) { return transpose(x[0], axes_of(options)[0], axes_of(options)[1]); }}},
      {"squeeze", {[](auto& x, auto& options) { return squeeze(x[0], axes_of(options)[0]); }}},
      {"unsqueeze", {[](auto& x, auto& options) { return unsqueeze(x[0], axes_of(options)[0]); }}},
      {"broadcast_to", {[](auto& x, auto& options) { return broadcast_to(x[0], shape_of(options)); }}},
      {"slice", {slice_of}},
      {"chunk", {chunk_of}},
      {"concat", {[](auto& x, auto& options) { return concat(x, axes_of(options)[0]); }}},
      {"stack", {[](auto& x, auto& options) { return stack(x, axes_of(options)[0]); }}},
      {"pad", {pad_of}},
      {"flatten", {[](auto& x, auto&) { return flatten(x[0]); }}},
      {"index_select", {[](auto& x, auto& options) {
         return index_select(x[0], axes_of(options)[0], constant_of<std::int32_t>(x[1]));
       }}},
      {"embedding", {[](auto& x, auto&) { return embedding(x[0], constant_of<std::int32_t>(x[1])); }}},
      {"softmax", {[](auto& x, auto& options) { return softmax(x[0], axes_of(options)[0]); }, 64}},
      {"log_softmax", {[](auto& x, auto& options) { return log_softmax(x[0], axes_of(options)[0]); }, 64}},
      {"cross_entropy", {cross_entropy_of, 40}},
      {"cross_entropy_with", {cross_entropy_with<false>}},
      {"nll_loss", {cross_entropy_with<true>}},
      {"l1_loss", {[](auto& x, auto& options) { return l1_loss(x[0], x[1], reduction_of(options)); }}},
      {"huber_loss",
       {[](auto& x, auto& options) { return huber_loss(x[0], x[1], reduction_of(options), options[1]); }, 0,
        1}},
      {"smooth_l1_loss",
       {[](auto& x, auto& options) { return smooth_l1_loss(x[0], x[1], reduction_of(options), options[1]); },
        0, 1}},
      {"mse_loss", {[](auto& x, auto& options) { return mse_loss(x[0], x[1], reduction_of(options)); }}},
      {"binary_cross_entropy_with_logits",
       {[](auto& x, auto& options) {
          return binary_cross_entropy_with_logits(x[0], x[1], reduction_of(options));
        },
        0, 1}},
      {"kl_divergence",
       {[](auto& x, auto& options) { return kl_divergence(x[0], x[1], reduction_of(options)); }}},
      {"layer_norm", {[](auto& x, auto&) { return layer_norm(x[0], x[1].shape(), x[1], x[2]); }, 64}},
      {"group_norm",
       {[](auto& x, auto& options) { return group_norm(x[0], axes_of(options)[0], x[1], x[2]); }, 64}},
      {"batch_norm", {batch_norm_of, 24, 1, false, true}},
      {"batch_norm_relu", {batch_norm_relu_of, 24}},
      {"batch_norm_with", {batch_norm_with, 0, 1, false, true}},
      {"layer_norm_with", {layer_norm_with, 0, 1, false, true}},
      {"group_norm_with",
       {[](auto& x, auto& options) {
          return group_norm(x[0], axes_of(options)[1], optional(x, 1), optional(x, 2), options[0]);
        },
        0, 1, false, true}},
      {"max_pool2d", {[](auto& x, auto& options) { return max_pool2d(x[0], window_of(options)); }, 9}},
      {"avg_pool2d", {[](auto& x, auto& options) { return avg_pool2d(x[0], window_of(options)); }, 9}},
      {"max_pool2d_with", {pool2d_with<max_pool2d>}},
      {"avg_pool2d_with", {pool2d_with<avg_pool2d>}},
      {"adaptive_max_pool2d", {adaptive_of<adaptive_max_pool2d>}},
      {"adaptive_avg_pool2d", {adaptive_of<adaptive_avg_pool2d>}},
      {"global_avg_pool2d", {[](auto& x, auto&) { return global_avg_pool2d(x[0]); }, 16}},
      {"conv2d", {conv2d_of, 27}},
      {"conv2d_with", {conv2d_with}},
      {"conv2d_transpose", {conv2d_transpose_of}},
      {"matmul", {[](auto& x, auto&) { return matmul(x[0], x[1]); }, 13}},
      {"linear", {[](auto& x, auto&) { return linear(x[0], x[1], optional(x, 2)); }, 3}},
      {"attention",
       {[](auto& x, auto& options) {
          return scaled_dot_product_attention(x[0], x[1], x[2], {.causal = options[0] != 0, .scale = 0.25});
        },
        6, 1}},
      {"attention_with", {attention_with, 0, 4, false, true}},  // scores of up to 81
  };
  return table;
}

}  // namespace convoy::testing
