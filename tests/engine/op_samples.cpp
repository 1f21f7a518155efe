#include "tests/engine/op_samples.h"

#include <fmt/format.h>
#include <fnmatch.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <set>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/io/safetensors.h"
#include "convoy/kernels/base/check.h"
#include "tests/engine/sampled_ops.h"
#include "tests/testing/op_cases/evaluate.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

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
  const SampledOp& op = ops_by_sample_name().at(sample.substr(0, sample.find('/')));
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
