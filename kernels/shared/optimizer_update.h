// The update of one element by each optimizer, shared by the CPU loops and the CUDA kernels. Constants are
// computed in f64 and stored in the element type T, so that a loop over floats contains no doubles. `grad` is
// the gradient after scaling. See kernels/optimizer_step.h for the formulas and references.
#pragma once

#include <cmath>
#include <cstdint>

#include "convoy/kernels/optimizer_step.h"

namespace convoy::kernels {

/// The pointers of a StepScalars, as passed to a kernel.
struct StepPointers {
  const double* lr;
  const double* grad_scale;
  const std::int32_t* skip;
  const double* steps;

  explicit StepPointers(const StepScalars& scalars)
      : lr(scalars.lr.as<double>()),
        grad_scale(scalars.grad_scale.as<double>()),
        skip(scalars.skip.as<std::int32_t>()),
        steps(scalars.steps.as<double>()) {}

  CONVOY_HOST_DEVICE bool skipped() const { return skip != nullptr && *skip != 0; }
  CONVOY_HOST_DEVICE double gradient_factor() const { return grad_scale != nullptr ? *grad_scale : 1; }
};

/// The update of SGD without momentum.
template <class T>
struct SgdUpdate {
  using Element = T;
  using Options = SgdOptions;
  static constexpr int kStates = 0;
  T lr, weight_decay;

  CONVOY_HOST_DEVICE SgdUpdate(const SgdOptions& options, const StepPointers& step)
      : lr(static_cast<T>(*step.lr * options.lr_scale)), weight_decay(static_cast<T>(options.weight_decay)) {}

  CONVOY_HOST_DEVICE void operator()(T grad, T& p) const { p -= lr * (grad + weight_decay * p); }
};

/// The update of SGD with momentum m.
template <class T, bool kNesterov>
struct MomentumUpdate {
  using Element = T;
  using Options = SgdOptions;
  static constexpr int kStates = 1;
  T lr, momentum, weight_decay;

  CONVOY_HOST_DEVICE MomentumUpdate(const SgdOptions& options, const StepPointers& step)
      : lr(static_cast<T>(*step.lr * options.lr_scale)),
        momentum(static_cast<T>(options.momentum)),
        weight_decay(static_cast<T>(options.weight_decay)) {}

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m) const {
    const T g = grad + weight_decay * p;
    m = momentum * m + g;
    p -= lr * (kNesterov ? g + momentum * m : m);
  }
};

/// The update of Adam and AdamW with the moments m and v.
template <class T>
struct AdamUpdate {
  using Element = T;
  using Options = AdamOptions;
  static constexpr int kStates = 2;
  T beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  T step_size, inverse_root_correction2;  // lr / (1 - beta1^steps), 1 / sqrt(1 - beta2^steps)
  // Weight decay of Adam: g += coupled_decay p. Weight decay of AdamW: p *= decay_factor.
  T coupled_decay, decay_factor;

  CONVOY_HOST_DEVICE AdamUpdate(const AdamOptions& options, const StepPointers& step)
      : AdamUpdate(options, *step.lr * options.lr_scale, *step.steps) {}

  CONVOY_HOST_DEVICE AdamUpdate(const AdamOptions& options, double lr, double steps)
      : beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        epsilon(static_cast<T>(options.epsilon)),
        step_size(static_cast<T>(lr / (1 - std::pow(options.beta1, steps)))),
        inverse_root_correction2(static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, steps)))),
        coupled_decay(static_cast<T>(options.decoupled ? 0 : options.weight_decay)),
        decay_factor(static_cast<T>(options.decoupled ? 1 - lr * options.weight_decay : 1)) {}

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m, T& v) const {
    const T g = grad + coupled_decay * p;
    m = beta1 * m + one_minus_beta1 * g;
    v = beta2 * v + one_minus_beta2 * g * g;
    p = decay_factor * p - step_size * m / (std::sqrt(v) * inverse_root_correction2 + epsilon);
  }
};

/// Returns the result of clip_coefficient (kernels/optimizer_step.h). norm and loss_scale may be null.
template <class T>
CONVOY_HOST_DEVICE double clip_coefficient_of(const double* norm, double max_norm, const T* loss_scale) {
  const double scale = loss_scale != nullptr ? static_cast<double>(*loss_scale) : 1;
  if (norm == nullptr) return 1 / scale;
  const double ratio = max_norm / (*norm / scale + 1e-6);
  return (ratio > 1 ? 1 : ratio) / scale;  // this order of comparison preserves NaN
}

}  // namespace convoy::kernels
