#include "tests/engine/op_samples.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <set>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/op_cases/evaluate.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using Variables = std::vector<Variable>;
using Numbers = std::vector<double>;  // the arguments of an op

/// The result that is compared, and the variable from which the gradients are computed: with the formula's seed, or
/// with ones if it is the sum of the results.
struct SampleResult {
  Variable root;
  Tensor y;
  bool is_sum;

  SampleResult(const Variable& result) : root(result), y(result.value()), is_sum(false) {}
  SampleResult(const CrossEntropy& result) : root(result.loss), y(result.losses), is_sum(true) {}
};

struct SampledOp {
  std::function<SampleResult(const Variables& x, const Numbers& options)> op;
  double terms = 0;  // of the longest sum; 0: each element is computed from one element per input
  double slope = 0;  // the derivative may have 16 roundings of this value: terms near it cancel
  bool has_gaussian_tail = false;  // the result has the relative condition of exp(-x^2 / 2): x^2
  bool is_near_pytorch = false;    // up to four times PyTorch's own error in the same type is permitted
};

std::vector<int> axes_of(const Numbers& options) { return {options.begin(), options.end()}; }

Pool2dOptions window_of(const Numbers& options) {
  return {.kernel = static_cast<int>(options[0]),
          .stride = static_cast<int>(options[1]),
          .padding = static_cast<int>(options[2])};
}

SampleResult cross_entropy_of(const Variables& x, const Numbers& options) {
  const std::vector<std::int32_t> labels(options.begin() + 1, options.end());
  return cross_entropy(x[0], Tensor::from(labels, {x[0].shape()[0]}, x[0].context()),
                       {.smoothing = options[0]});
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

SampleResult where_of(const Variables& x, const Numbers& options) {
  const std::vector<std::uint8_t> condition(options.begin(), options.end());
  return where(Tensor::from(condition, x[0].shape(), x[0].context()), x[0], x[1]);
}

const std::map<std::string, SampledOp>& ops() {
  static const std::map<std::string, SampledOp> table = {
      {"relu", {[](auto& x, auto&) { return relu(x[0]); }}},
      {"gelu", {[](auto& x, auto&) { return gelu(x[0]); }, 0, 1, true}},
      {"silu", {[](auto& x, auto&) { return silu(x[0]); }, 0, 1}},
      {"hardswish", {[](auto& x, auto&) { return hardswish(x[0]); }, 0, 1}},
      {"tanh", {[](auto& x, auto&) { return tanh(x[0]); }, 0, 1}},
      {"sigmoid", {[](auto& x, auto&) { return sigmoid(x[0]); }, 0, 1}},
      {"exp", {[](auto& x, auto&) { return exp(x[0]); }}},
      {"log", {[](auto& x, auto&) { return log(x[0]); }}},
      {"sqrt", {[](auto& x, auto&) { return sqrt(x[0]); }}},
      {"abs", {[](auto& x, auto&) { return abs(x[0]); }}},
      {"pow", {[](auto& x, auto& options) { return pow(x[0], options[0]); }}},
      {"div_scalar", {[](auto& x, auto& options) { return x[0] / options[0]; }}},
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
      {"softmax", {[](auto& x, auto& options) { return softmax(x[0], axes_of(options)[0]); }, 64}},
      {"log_softmax", {[](auto& x, auto& options) { return log_softmax(x[0], axes_of(options)[0]); }, 64}},
      {"cross_entropy", {cross_entropy_of, 40}},
      {"mse_loss", {[](auto& x, auto&) { return mse_loss(x[0], x[1], Reduction::none); }}},
      {"binary_cross_entropy_with_logits",
       {[](auto& x, auto&) { return binary_cross_entropy_with_logits(x[0], x[1], Reduction::none); }, 0, 1}},
      {"kl_divergence", {[](auto& x, auto&) { return kl_divergence(x[0], x[1], Reduction::none); }}},
      {"layer_norm", {[](auto& x, auto&) { return layer_norm(x[0], x[1].shape(), x[1], x[2]); }, 64}},
      {"group_norm",
       {[](auto& x, auto& options) { return group_norm(x[0], axes_of(options)[0], x[1], x[2]); }, 64}},
      {"batch_norm", {batch_norm_of, 24, 1, false, true}},
      {"batch_norm_relu", {batch_norm_relu_of, 24}},
      {"max_pool2d", {[](auto& x, auto& options) { return max_pool2d(x[0], window_of(options)); }, 9}},
      {"avg_pool2d", {[](auto& x, auto& options) { return avg_pool2d(x[0], window_of(options)); }, 9}},
      {"global_avg_pool2d", {[](auto& x, auto&) { return global_avg_pool2d(x[0]); }, 16}},
      {"conv2d",
       {[](auto& x, auto& options) {
          return conv2d(x[0], x[1], x[2], {.stride = axes_of(options)[0], .padding = axes_of(options)[1]});
        },
        27}},
      {"matmul", {[](auto& x, auto&) { return matmul(x[0], x[1]); }, 13}},
      {"linear", {[](auto& x, auto&) { return linear(x[0], x[1], x[2]); }, 3}},
      {"attention",
       {[](auto& x, auto& options) {
          return scaled_dot_product_attention(x[0], x[1], x[2], {.causal = options[0] != 0, .scale = 0.25});
        },
        6, 1}},
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

const std::map<std::string, Tensor>& stored() {
  static const Reference reference("samples.safetensors");
  return reference.tensors();
}

/// Returns the names <op>/<case> of the op.
std::set<std::string> samples_of(const std::string& op) {
  std::set<std::string> names;
  for (const auto& [name, tensor] : stored())
    if (name.starts_with(op + "/")) names.insert(name.substr(0, name.rfind('/')));
  return names;
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
  Comparison(const std::string& sample, const std::string& key, const DeviceContext& device, DType dtype,
             const SampledOp& op)
      : name_(sample + "/" + key), dtype_(dtype), expected_(rounded(stored().at(name_))), own_(expected_) {
    const auto permitted = std::ranges::find(kDifferences, name_, &Difference::tensor);
    if (permitted != kDifferences.end() &&
        (!permitted->only_on_gpu || (device.device().kind == DeviceKind::cuda && dtype == DType::f32)))
      permitted_ = &*permitted;
    const auto own = stored().find(name_ + (dtype == DType::f64 ? "_f64" : "_f32"));
    if (own != stored().end()) own_ = rounded(own->second);
    double largest = 0, own_error = 0;
    for (std::size_t i = 0; i < expected_.size(); ++i) {
      if (!std::isfinite(expected_[i])) continue;
      largest = std::max(largest, std::abs(expected_[i]));
      if (std::isfinite(own_[i])) own_error = std::max(own_error, std::abs(own_[i] - expected_[i]));
    }
    // The gradient of an argument that was broadcast is a sum.
    const auto results = static_cast<double>(stored().at(sample + "/y").numel());
    const auto elements = static_cast<double>(expected_.size());
    const double terms = op.terms == 0 && elements > 0 && elements < results ? results / elements : op.terms;
    tolerance_ = 16 * eps_of(dtype) * std::sqrt(terms) * largest;
    if (key != "y") tolerance_ += 16 * eps_of(dtype) * op.slope;
    has_gaussian_tail_ = op.has_gaussian_tail && key == "y";
    if (op.is_near_pytorch) tolerance_ += 4 * own_error;
  }

  /// Compares the elements. x are the sample's inputs.
  void expect_agreement(const Tensor& tensor, const std::vector<Numbers>& x) const {
    ASSERT_EQ(tensor.shape(), stored().at(name_).shape()) << name_;
    const Numbers found = values_of(tensor);
    const double smallest_normal =
        dtype_ == DType::f64 ? std::numeric_limits<double>::min() : std::numeric_limits<float>::min();
    std::size_t differences = 0;
    for (std::size_t i = 0; i < found.size(); ++i) {
      const auto input = [&](std::size_t k) { return k < x.size() && i < x[k].size() ? x[k][i] : 0; };
      const double condition = has_gaussian_tail_ && std::isfinite(input(0)) ? 1 + input(0) * input(0) : 1;
      const auto ulps = [&](double value) {
        return 16 * eps_of(dtype_) * condition * std::max(std::abs(value), smallest_normal);
      };
      if (agrees(found[i], expected_[i], std::max(ulps(expected_[i]), tolerance_)) ||
          agrees(found[i], own_[i], ulps(own_[i])))
        continue;
      if (permitted_ != nullptr && (permitted_->where == nullptr || permitted_->where(input(0), input(1)))) {
        ++differences;
        continue;
      }
      ADD_FAILURE() << name_ << " in " << to_string(dtype_) << ": element " << i << ", of inputs " << input(0)
                    << " and " << input(1) << ", is " << found[i] << ", expected " << expected_[i]
                    << " as PyTorch";
    }
    if (permitted_ != nullptr) {
      EXPECT_GT(differences, 0u) << name_ << " no longer differs: " << permitted_->reason;
    }
  }

 private:
  Numbers rounded(const Tensor& exact) const { return values_of(exact.to(dtype_)); }

  std::string name_;
  DType dtype_;
  Numbers expected_;  // in f64, rounded once
  Numbers own_;       // PyTorch's in dtype_
  double tolerance_ = 0;
  bool has_gaussian_tail_ = false;
  const Difference* permitted_ = nullptr;
};

void expect_sample_agrees(const std::string& sample, const SampledOp& op, DType dtype,
                          const DeviceContext& device) {
  Variables x;
  std::vector<Numbers> inputs;
  for (;;) {
    const auto input = stored().find(sample + "/x" + std::to_string(x.size()));
    if (input == stored().end()) break;
    inputs.push_back(values_of(input->second));
    x.emplace_back(input->second.to(dtype).to(device), /*requires_grad=*/true);
  }
  const auto options = stored().find(sample + "/options");
  const auto compute = [&] {
    return op.op(x, options == stored().end() ? Numbers() : values_of(options->second));
  };
  const auto refusal = std::ranges::find(kRefusals, sample, &Refusal::sample);
  if (refusal != kRefusals.end()) {
    EXPECT_THROW(compute(), UsageError) << sample << " is no longer refused: " << refusal->reason;
    return;
  }
  const SampleResult result = compute();
  Comparison(sample, "y", device, dtype, op).expect_agreement(result.y, inputs);
  Tensor seed;
  if (!result.is_sum) seed = formula_values(sample + "/dy", result.y.shape(), dtype).to(device);
  backward(result.root, {.seed = seed});
  for (std::size_t i = 0; i < x.size(); ++i)
    Comparison(sample, "dx" + std::to_string(i), device, dtype, op).expect_agreement(x[i].grad(), inputs);
}

}  // namespace

std::vector<std::string> sampled_ops() {
  std::vector<std::string> names;
  for (const auto& [name, op] : ops()) names.push_back(name);
  return names;
}

void expect_samples_agree(const std::string& op, const DeviceContext& device) {
  const std::set<std::string> samples = samples_of(op);
  EXPECT_FALSE(samples.empty()) << op;
  for (const std::string& sample : samples)
    for (const DType dtype : {DType::f32, DType::f64}) {
      if (dtype == DType::f32 && sample.ends_with("_f64")) continue;  // f32 does not have the inputs
      SCOPED_TRACE(sample);
      expect_sample_agrees(sample, ops().at(op), dtype, device);
    }
}

}  // namespace convoy::testing
