#include "tests/testing/op_cases/evaluate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "convoy/engine/autograd/backward.h"

namespace convoy::testing {

Values values_of(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

std::vector<Variable> arguments(const OpCase& c, DType dtype, const DeviceContext& device, std::size_t only) {
  std::vector<Variable> x;
  for (std::size_t i = 0; i < c.inputs.size(); ++i)
    x.emplace_back(drawn(c.inputs[i], dtype, device, c.name + std::to_string(i), c.domain),
                   only == SIZE_MAX || only == i);
  return x;
}

CaseResult evaluate(const OpCase& c, DType dtype, const DeviceContext& device, std::size_t only) {
  const std::vector<Variable> x = arguments(c, dtype, device, only);
  const Variable y = c.op(x);
  backward(y, {.seed = drawn(y.shape(), dtype, device, c.name + "weights")});
  CaseResult result{.y = values_of(y.value())};
  for (const Variable& input : x)
    result.gradients.push_back(input.has_new_grad() ? values_of(input.grad()) : Values{});
  return result;
}

namespace {

/// Returns the maximum relative error of one rounding.
double roundoff_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::f16: return 0x1p-11;
    default: return 0x1p-8;  // bf16
  }
}

}  // namespace

double roundings_of(const OpCase& c, DType dtype, const DeviceContext& device, std::int64_t offset) {
  const auto results_in = [&](DType type) {
    const auto placed = [&](const Tensor& values) {
      const Tensor at = Tensor::empty({offset + values.numel()}, type, device).slice(offset, values.shape());
      at.copy_from(values.to(type));
      return at;
    };
    std::vector<Variable> x;
    for (const Variable& argument : arguments(c, dtype, device))
      x.emplace_back(placed(argument.value()), /*requires_grad=*/true);
    const Variable y = c.op(x);
    const Tensor dy = placed(drawn(y.shape(), dtype, device, c.name + "weights")).to(y.dtype());
    std::vector<Values> results = {values_of(y.value())};
    const auto add_gradients = [&] {
      for (const Variable& input : x) results.push_back(values_of(input.grad()));
    };
    backward(y, {.seed = dy});
    add_gradients();
    backward(c.op(x), {.accumulate = true, .seed = dy});
    add_gradients();
    return results;
  };
  const std::vector<Values> found = results_in(dtype), exact = results_in(DType::f64);
  double largest = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double norm = norm_of(exact[i]);
    largest = std::max(largest, distance(found[i], exact[i]) / (norm > 0 ? norm : 1));
  }
  return largest / roundoff_of(dtype);
}

std::vector<OpCase> cases_of_every_type() {
  std::vector<OpCase> cases = all_op_cases();
  for (OpCase& tail : tail_cases()) cases.push_back(std::move(tail));
  std::erase_if(cases, [](const OpCase& c) { return c.roundings == 0; });
  return cases;
}

OpCase with_empty_batch(const OpCase& c) {
  OpCase empty = c;
  for (const std::size_t i : c.batched) {
    const auto sizes = c.inputs[i].sizes();
    std::vector<std::int64_t> without(sizes.begin(), sizes.end());
    without[0] = 0;
    empty.inputs[i] = Shape(without);
  }
  return empty;
}

double norm_of(const Values& values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

double distance(const Values& a, const Values& b) {
  EXPECT_EQ(a.size(), b.size());
  Values difference(a);
  for (std::size_t i = 0; i < a.size(); ++i) difference[i] -= b[i];
  return norm_of(difference);
}

double relative_tolerance(const OpCase& c, DType dtype) {
  const double eps = dtype == DType::f64 ? std::numeric_limits<double>::epsilon()
                                         : static_cast<double>(std::numeric_limits<float>::epsilon());
  return 16 * eps * std::sqrt(c.terms);
}

}  // namespace convoy::testing
