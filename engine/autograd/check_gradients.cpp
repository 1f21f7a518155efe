#include "convoy/engine/autograd/check_gradients.h"

#include <cmath>

#include "convoy/engine/autograd/backward.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/random.h"

namespace convoy {
namespace {

/// Returns values drawn uniformly from [low, high]; `which` numbers the tensors of one check.
Tensor drawn(const Shape& shape, const GradientCheckOptions& options, double low, double high,
             std::uint64_t which) {
  const Random random{.seed = options.seed + (which << 32U), .purpose = RandomPurpose::test};
  std::vector<double> values(static_cast<std::size_t>(shape.numel()));
  for (std::size_t i = 0; i < values.size(); ++i)
    values[i] = low + (high - low) * to_uniform(random.words(i)[0]);
  return Tensor::from(values, shape, Device::cpu());
}

/// Returns <op(arguments), weights> and the norm of op(arguments).
struct WeightedResult {
  double sum = 0, norm = 0;

  WeightedResult(const Variable& y, const std::vector<double>& weights) {
    const std::vector<double> values = y.value().to_vector<double>();
    for (std::size_t i = 0; i < values.size(); ++i) {
      sum += weights[i] * values[i];
      norm += values[i] * values[i];
    }
    norm = std::sqrt(norm);
  }
};

}  // namespace

void check_gradients(const DifferentiableFunction& op, const std::vector<Shape>& shapes,
                     const GradientCheckOptions& options) {
  std::vector<Tensor> arguments;
  std::vector<Variable> x;
  for (const Shape& shape : shapes) {
    arguments.push_back(drawn(shape, options, options.low, options.high, arguments.size()));
    x.emplace_back(arguments.back());
  }
  check_gradients_at(op, arguments, drawn(op(x).shape(), options, -1, 1, shapes.size()), options);
}

void check_gradients_at(const DifferentiableFunction& op, const std::vector<Tensor>& arguments,
                        const Tensor& weights, const GradientCheckOptions& options) {
  for (const Tensor& argument : arguments)
    check(argument.dtype() == DType::f64 && argument.device() == Device::cpu(),
          "check_gradients: found an argument that is {} on {}, expected f64 on cpu",
          to_string(argument.dtype()), argument.context().name());
  const auto leaves = [&](bool require_grad) {
    std::vector<Variable> x;
    for (const Tensor& argument : arguments) x.emplace_back(argument.clone(), require_grad);
    return x;
  };
  const std::vector<double> w = weights.to_vector<double>();
  const std::vector<Variable> x = leaves(true);
  const Variable y = op(x);
  const double norm = WeightedResult(y, w).norm;
  backward(y, {.seed = weights});

  const NoGrad no_grad;
  const double tolerance = options.tolerance * (1 + norm);
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    check(x[i].has_new_grad(), "check_gradients: the op computed no gradient of argument {}", i);
    const std::vector<double> gradient = x[i].grad().to_vector<double>();
    for (std::size_t element = 0; element < gradient.size(); ++element) {
      const auto moved = [&](double step) {
        const std::vector<Variable> near = leaves(false);
        near[i].value().view().as<double>()[element] += step;
        return WeightedResult(op(near), w).sum;
      };
      const double expected = (moved(options.step) - moved(-options.step)) / (2 * options.step);
      if (std::abs(gradient[element] - expected) <= tolerance) continue;  // false for NaN
      fail<NumericError>(
          "check_gradients: the gradient of argument {} {} at element {} is {}, expected {} by central "
          "differences, with an error of at most {:.1e}",
          i, arguments[i].shape().text(), element, gradient[element], expected, tolerance);
    }
  }
}

}  // namespace convoy
