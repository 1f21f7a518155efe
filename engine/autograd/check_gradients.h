// check_gradients(): compares the gradients of an op with finite differences. Both functions may be called on
// several threads at once if the op may be.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// An op, or any composition of ops, as a function of its differentiable arguments.
using DifferentiableFunction = std::function<Variable(std::span<const Variable> x)>;

/// Options of check_gradients().
struct GradientCheckOptions {
  /// The minimum of the arguments, which are drawn uniformly. Choose an interval where the op is smooth.
  double low = -1;
  double high = 1;         // maximum of the arguments
  std::uint64_t seed = 1;  // of the arguments and the weights
  /// The distance of the two points of a difference. Truncation is about step^2 and rounding about 1e-16 /
  /// step, relative to the result.
  double step = 0x1p-16;
  /// The maximum error, relative to 1 + the norm of the result.
  double tolerance = 2e-9;
};

/// Checks the gradients of <op(x), w>, for random weights w, with respect to every element of every argument
/// against central differences in f64 on the CPU. Calls the op twice per element, so shapes should be small.
/// Throws NumericError that names the argument, the element and both values where they differ, and UsageError
/// if the op computes no gradient of an argument.
void check_gradients(const DifferentiableFunction& op, const std::vector<Shape>& shapes,
                     const GradientCheckOptions& options = {});

/// Does the same at the given arguments, f64 on the CPU, and for the given weights of the shape of the
/// result. Throws UsageError for arguments of another type or device.
void check_gradients_at(const DifferentiableFunction& op, const std::vector<Tensor>& arguments,
                        const Tensor& weights, const GradientCheckOptions& options = {});

}  // namespace convoy
