#include "tests/engine/op_samples.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <set>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/op_cases/evaluate.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using Variables = std::vector<Variable>;
using Numbers = std::vector<double>;  // the arguments of an op

/// The result that is compared, and the variable from which the gradients are computed: with a seed, or with ones if it
/// is the sum of the results. Undefined if there are no gradients.
struct SampleResult {
  Variable root;
  Tensor y;
  bool is_sum = false;

  SampleResult(const Variable& result) : root(result), y(result.value()) {}
  SampleResult(const Tensor& result) : y(result) {}
  SampleResult(const CrossEntropy& result) : root(result.loss), y(result.losses), is_sum(true) {}
};

struct SampledOp {
  std::function<SampleResult(const Variables& x, const Numbers& options)> op;
  double terms = 0;  // of the longest sum; 0: each element is computed from one element per input
  double slope = 0;  // the derivative may have 16 roundings of this value: terms near it cancel
  bool has_gaussian_tail = false;  // the result has the relative condition of exp(-x^2 / 2): x^2
  bool is_near_pytorch = false;    // up to four times PyTorch's own error in the same type is permitted
};

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

const std::map<std::string, SampledOp>& ops() {
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
      {"gather", {[](auto& x, auto& options) {
         return gather(x[0], constant_of<std::int32_t>(x[1]), axes_of(options)[0]);
       }}},
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

/// Elements at which Convoy differs from PyTorch on purpose. docs/precision.md has the same table.
struct Difference {
  const char* tensor;  // a tensor of tests/reference/samples.safetensors
  const char* reason;
  /// Returns whether an element with these inputs may differ; null: any element.
  bool (*where)(double x0, double x1) = nullptr;
  bool only_on_gpu = false;
};

constexpr double kInfinity = std::numeric_limits<double>::infinity();

const char* const kOverflow =
    "a GPU sums squares of f32 in f32, which overflow from 1.8e19 on, PyTorch's CPU in f64";

const std::vector<Difference> kDifferences = {
    {"binary_cross_entropy_with_logits/special/y",
     "a logit of -Inf with a target above 0 loses Inf, PyTorch has NaN",
     [](double x, double t) { return x == -kInfinity && t > 0; }},
    {"kl_divergence/special/y", "a target of 0 adds 0, PyTorch has NaN for a log-probability of -Inf or NaN",
     [](double, double t) { return t == 0; }},
    {"kl_divergence/special/dx1", "a target of 0 has the gradient 0, PyTorch has -Inf or NaN",
     [](double, double t) { return t == 0; }},
    {"variance/special/dx0", "a finite number next to an infinite one has the gradient NaN, PyTorch's is Inf",
     [](double x, double) { return std::isfinite(x); }},
    {"layer_norm/special/y", kOverflow, nullptr, true},
    {"group_norm/special/y", kOverflow, nullptr, true},
    {"max_pool2d/k3s1p1_special/dx0", "the first of several NaN has the gradient, PyTorch's is the last"},
};

/// Cases for which Convoy throws UsageError and PyTorch has a result.
struct Refusal {
  const char* sample;
  const char* reason;
};

const std::vector<Refusal> kRefusals = {
    {"mean/of_nothing", "a mean of nothing is NaN in PyTorch"},
    {"variance/of_nothing", "a variance of nothing is NaN in PyTorch"},
    {"variance/size_1", "the unbiased variance of one number is NaN in PyTorch"},
    {"softmax/of_nothing", "a softmax of nothing is empty in PyTorch"},
    {"log_softmax/of_nothing", "a softmax of nothing is empty in PyTorch"},
};

/// What Convoy refuses among PyTorch's sample inputs, as <op>/<case>: <message>, where `*` is any text. docs/precision.md
/// has the same table.
const std::vector<Refusal> kRefusedArguments = {
    {"*: found axis * for a scalar*", "an axis of a scalar, which PyTorch takes for one of size 1"},
    {"matmul/*dimensions, expected at least 2", "a vector as a factor"},
    {"linear/*dimensions, expected *", "a vector as the input or the weight"},
    {"matmul/*leading sizes differ", "leading axes that must be broadcast"},
    {"attention_with/*expected *T, D*", "leading axes that must be broadcast"},
    {"variance_over/*found 0 elements*", "a variance of nothing is NaN in PyTorch"},
    {"*softmax/*found no elements along axis*", "a softmax of nothing is empty in PyTorch"},
    {"squeeze/*found size*expected 1", "an axis of another size, which PyTorch keeps"},
    {"pad/*elements around axis*expected at least 0", "negative padding, which removes elements in PyTorch"},
    {"chunk/*expected a divisor of*", "parts of two sizes"},
    {"concat/*found *0]*", "an empty vector, which PyTorch leaves out"},
    {"gather/*expected an equal rank*", "empty indices of another rank"},
};

/// The tensors of a file of samples, by name: <op>/<case>/<key>.
using Samples = std::map<std::string, Tensor>;

/// Returns the samples of tests/reference/samples.py.
const Samples& stored_samples() {
  static const Reference reference("samples.safetensors");
  return reference.tensors();
}

/// Returns the names <op>/<case> of the samples, or of those of one op.
std::set<std::string> names_of(const Samples& samples, const std::string& op = "") {
  std::set<std::string> names;
  for (const auto& [name, tensor] : samples)
    if (name.ends_with("/y") && (op.empty() || name.starts_with(op + "/")))
      names.insert(name.substr(0, name.rfind('/')));
  return names;
}

const Tensor* find(const Samples& samples, const std::string& name) {
  const auto found = samples.find(name);
  return found == samples.end() ? nullptr : &found->second;
}

double eps_of(DType dtype) { return dtype == DType::f64 ? 0x1p-52 : 0x1p-23; }

/// Returns whether a value is the expected one, or a number within `tolerance` of it.
bool agrees(double found, double expected, double tolerance) {
  if (std::isnan(expected)) return std::isnan(found);
  return found == expected || std::abs(found - expected) <= tolerance;
}

/// One result of a sample, and what PyTorch computed.
class Comparison {
 public:
  Comparison(const Samples& samples, const std::string& sample, const std::string& key,
             const DeviceContext& device, DType dtype, const SampledOp& op)
      : name_(sample + "/" + key),
        dtype_(dtype),
        shape_(samples.at(name_).shape()),
        expected_(rounded(samples.at(name_))),
        own_(expected_) {
    const auto permitted = std::ranges::find(kDifferences, name_, &Difference::tensor);
    if (permitted != kDifferences.end() &&
        (!permitted->only_on_gpu || (device.device().kind == DeviceKind::cuda && dtype == DType::f32)))
      permitted_ = &*permitted;
    if (const Tensor* own = find(samples, name_ + (dtype == DType::f64 ? "_f64" : "_f32")))
      own_ = rounded(*own);
    double largest = 0, own_error = 0;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      if (!std::isfinite(expected_[i])) continue;
      largest = std::max(largest, std::abs(expected_[i]));
      if (std::isfinite(own_[i])) own_error = std::max(own_error, std::abs(own_[i] - expected_[i]));
    }
    const Tensor* given = find(samples, sample + "/terms");
    double terms = given == nullptr ? op.terms : values_of(*given)[0];
    // The gradient of an argument that was broadcast is a sum.
    const auto results = static_cast<double>(samples.at(sample + "/y").numel());
    const auto elements = static_cast<double>(expected_.size());
    if (terms == 0 && elements > 0 && elements < results) terms = results / elements;
    tolerance_ = 16 * eps_of(dtype) * std::sqrt(terms) * largest;
    if (key != "y") tolerance_ += 16 * eps_of(dtype) * op.slope;
    has_gaussian_tail_ = op.has_gaussian_tail && key == "y";
    if (op.is_near_pytorch) tolerance_ += 4 * own_error;
  }

  /// Compares the elements and returns the differences that are not permitted, as text. x are the sample's inputs.
  std::string differences_of(const Tensor& tensor, const std::vector<Numbers>& x) const {
    if (!(tensor.shape() == shape_))
      return name_ + ": found the shape " + tensor.shape().text() + ", expected " + shape_.text() + "\n";
    const Numbers found = values_of(tensor);
    const double smallest_normal =
        dtype_ == DType::f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
    std::size_t permitted = 0;
    std::string others;
    for (std::size_t i = 0; i < found.size() && others.size() < 2000; ++i) {
      const auto input = [&](std::size_t k) { return k < x.size() && i < x[k].size() ? x[k][i] : 0; };
      const double condition = has_gaussian_tail_ && std::isfinite(input(0)) ? 1 + input(0) * input(0) : 1;
      const auto ulps = [&](double value) {
        return 16 * eps_of(dtype_) * condition * std::max(std::abs(value), smallest_normal);
      };
      if (agrees(found[i], expected_[i], std::max(ulps(expected_[i]), tolerance_)) ||
          agrees(found[i], own_[i], ulps(own_[i])))
        continue;
      if (permitted_ != nullptr && (permitted_->where == nullptr || permitted_->where(input(0), input(1))))
        ++permitted;
      else
        others += fmt::format("{} in {}: element {}, of inputs {} and {}, is {}, expected {} as PyTorch\n",
                              name_, to_string(dtype_), i, input(0), input(1), found[i], expected_[i]);
    }
    if (permitted_ != nullptr && permitted == 0)
      others += name_ + " no longer differs: " + permitted_->reason + "\n";
    return others;
  }

 private:
  Numbers rounded(const Tensor& exact) const { return values_of(exact.to(dtype_)); }

  std::string name_;
  DType dtype_;
  Shape shape_;
  Numbers expected_;  // in f64, rounded once
  Numbers own_;       // PyTorch's in dtype_
  double tolerance_ = 0;
  bool has_gaussian_tail_ = false;
  const Difference* permitted_ = nullptr;
};

/// Computes a sample and its gradients, and returns the differences from PyTorch's that are not permitted, as text.
/// Throws UsageError if Convoy refuses the sample.
std::string differences_of(const Samples& samples, const std::string& sample, DType dtype,
                           const DeviceContext& device) {
  const SampledOp& op = ops().at(sample.substr(0, sample.find('/')));
  const auto part = [&](const std::string& key) { return find(samples, sample + "/" + key); };
  Variables x;
  std::vector<Numbers> inputs;
  while (const Tensor* input = part("x" + std::to_string(x.size()))) {
    inputs.push_back(values_of(*input));
    const bool has_gradient = part("dx" + std::to_string(x.size())) != nullptr;
    x.emplace_back(input->to(dtype).to(device), has_gradient);
  }
  const Tensor* options = part("options");
  const SampleResult result = op.op(x, options == nullptr ? Numbers() : values_of(*options));
  const auto compare = [&](const std::string& key, const Tensor& tensor) {
    return Comparison(samples, sample, key, device, dtype, op).differences_of(tensor, inputs);
  };
  std::string differences = compare("y", result.y);
  if (!result.root.defined() || !(result.y.shape() == part("y")->shape())) return differences;
  Tensor seed;
  if (!result.is_sum) {
    const Tensor* dy = part("dy");
    seed =
        (dy != nullptr ? dy->to(dtype) : formula_values(sample + "/dy", result.y.shape(), dtype)).to(device);
  }
  backward(result.root, {.seed = seed});
  for (std::size_t i = 0; i < x.size(); ++i)
    if (x[i].requires_grad()) differences += compare("dx" + std::to_string(i), x[i].grad());
  return differences;
}

void expect_sample_agrees(const std::string& sample, DType dtype, const DeviceContext& device) {
  const auto compute = [&] { return differences_of(stored_samples(), sample, dtype, device); };
  const auto refusal = std::ranges::find(kRefusals, sample, &Refusal::sample);
  if (refusal != kRefusals.end()) {
    EXPECT_THROW(compute(), UsageError) << sample << " is no longer refused: " << refusal->reason;
    return;
  }
  EXPECT_EQ(compute(), "");
}

/// The results of the samples of a family.
struct Tally {
  int agree = 0;
  int refused = 0;  // by a UsageError of kRefusedArguments
  int differ = 0;
  int missing = 0;  // have an argument that Convoy does not have
};

/// Computes a sample in both types and adds the worse result to the tally. Adds the reasons of refusals to `refusals`.
void count_sample(const Samples& samples, const std::string& sample, const DeviceContext& device,
                  Tally& tally, std::set<const Refusal*>& refusals) {
  bool is_refused = false;
  std::string failures;
  for (const DType dtype : {DType::f32, DType::f64}) {
    try {
      failures += differences_of(samples, sample, dtype, device);
    } catch (const UsageError& error) {
      const std::string text = sample + ": " + error.what();
      const auto refusal = std::ranges::find_if(kRefusedArguments, [&](const Refusal& each) {
        return fnmatch(each.sample, text.c_str(), /*flags=*/0) == 0;
      });
      is_refused = refusal != kRefusedArguments.end();
      if (is_refused)
        refusals.insert(&*refusal);
      else
        failures += text;
    } catch (const std::exception& error) {
      failures += sample + ": " + error.what();
    }
  }
  EXPECT_EQ(failures, "") << sample;
  ++(!failures.empty() ? tally.differ : is_refused ? tally.refused : tally.agree);
}

}  // namespace

std::vector<std::string> sampled_ops() {
  std::set<std::string> names;
  for (const std::string& name : names_of(stored_samples())) names.insert(name.substr(0, name.find('/')));
  return {names.begin(), names.end()};
}

void expect_samples_agree(const std::string& op, const DeviceContext& device) {
  for (const std::string& sample : names_of(stored_samples(), op))
    for (const DType dtype : {DType::f32, DType::f64}) {
      if (dtype == DType::f32 && sample.ends_with("_f64")) continue;  // f32 does not have the inputs
      SCOPED_TRACE(sample);
      expect_sample_agrees(sample, dtype, device);
    }
}

void expect_op_db_agrees(const std::string& path, const DeviceContext& device) {
  Samples samples;
  std::map<std::string, Tally> families;
  for (const io::NamedTensor& each : io::read_safetensors(path, Device::cpu()).tensors) {
    const Tensor tensor = each.tensor.to(DType::f64);
    if (each.name.starts_with("missing/"))
      families[each.name.substr(8)].missing = static_cast<int>(values_of(tensor)[0]);
    else
      samples.emplace(each.name, tensor);
  }
  std::set<const Refusal*> refusals;
  for (const std::string& sample : names_of(samples)) {
    const std::size_t family = sample.find('/') + 1;
    count_sample(samples, sample, device, families[sample.substr(family, sample.find('.') - family)],
                 refusals);
  }
  std::cout << "| family | tried | agree | refused | differ | missing |\n|---|---|---|---|---|---|\n";
  const auto print = [](const std::string& family, const Tally& tally) {
    std::cout << fmt::format("| {} | {} | {} | {} | {} | {} |\n", family,
                             tally.agree + tally.refused + tally.differ, tally.agree, tally.refused,
                             tally.differ, tally.missing);
  };
  Tally all;
  for (const auto& [family, tally] : families) {
    print(family, tally);
    all.agree += tally.agree;
    all.refused += tally.refused;
    all.differ += tally.differ;
    all.missing += tally.missing;
  }
  print("all", all);
  for (const Refusal& refusal : kRefusedArguments)
    EXPECT_TRUE(refusals.contains(&refusal)) << refusal.sample << " is no longer refused: " << refusal.reason;
}

}  // namespace convoy::testing
