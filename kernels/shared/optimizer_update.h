// The update of one element by each optimizer, shared by the CPU loops and the CUDA kernels. Constants are
// computed in f64 and stored in the element type T, so that a loop over floats contains no doubles. `grad` is
// the gradient after scaling. See kernels/optimizer_step.h for the formulas and references.
#pragma once

#include <cmath>
#include <cstdint>

#include "convoy/kernels/muon_step.h"
#include "convoy/kernels/optimizer_step.h"

namespace convoy::kernels {

/// The pointers of a StepScalars, as passed to a kernel.
struct StepPointers {
  const double* lr;  // by SgdOptions::rate and so on
  const double* grad_scale;
  const std::int32_t* skip;
  double* steps;
  double* own_steps;

  explicit StepPointers(const StepScalars& scalars)
      : lr(scalars.lr.as<double>()),
        grad_scale(scalars.grad_scale.as<double>()),
        skip(scalars.skip.as<std::int32_t>()),
        steps(scalars.steps.as<double>()),
        own_steps(scalars.own_steps.as<double>()) {}

  CONVOY_HOST_DEVICE bool skipped() const { return skip != nullptr && *skip != 0; }
  CONVOY_HOST_DEVICE double gradient_factor() const { return grad_scale != nullptr ? *grad_scale : 1; }
  /// Returns the counter of the steps of a group of parameters.
  CONVOY_HOST_DEVICE double* counter(const SgdOptions& /*options*/) const { return steps; }
  CONVOY_HOST_DEVICE double* counter(const AdamOptions& options) const {
    return options.own_steps < 0 ? steps : own_steps + options.own_steps;
  }
};

/// The coefficients of a step of SGD.
template <class T>
struct SgdCoefficients {
  using Options = SgdOptions;
  T lr, momentum, weight_decay;

  CONVOY_HOST_DEVICE SgdCoefficients(const SgdOptions& options, double rate, double /*step*/)
      : lr(static_cast<T>(rate * options.lr_scale)),
        momentum(static_cast<T>(options.momentum)),
        weight_decay(static_cast<T>(options.weight_decay)) {}
};

/// The update of SGD without momentum.
template <class T>
struct SgdUpdate {
  SgdCoefficients<T> by;

  CONVOY_HOST_DEVICE void operator()(T grad, T& p) const { p -= by.lr * (grad + by.weight_decay * p); }
};

/// The update of SGD with momentum m.
template <class T, bool kNesterov>
struct MomentumUpdate {
  SgdCoefficients<T> by;

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m) const {
    const T g = grad + by.weight_decay * p;
    m = by.momentum * m + g;
    p -= by.lr * (kNesterov ? g + by.momentum * m : m);
  }
};

/// The coefficients of step number `step` of Adam and AdamW.
template <class T>
struct AdamCoefficients {
  using Options = AdamOptions;
  T lr, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  T step_size, inverse_root_correction2;  // lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step)
  // Weight decay of Adam: g += coupled_decay p. Weight decay of AdamW: p *= decay_factor.
  T coupled_decay, decay_factor;

  CONVOY_HOST_DEVICE AdamCoefficients(const AdamOptions& options, double rate, double step)
      : lr(static_cast<T>(rate * options.lr_scale)),
        beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        epsilon(static_cast<T>(options.epsilon)),
        step_size(static_cast<T>(rate * options.lr_scale / (1 - std::pow(options.beta1, step)))),
        inverse_root_correction2(static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, step)))),
        coupled_decay(static_cast<T>(options.decoupled ? 0 : options.weight_decay)),
        decay_factor(
            static_cast<T>(options.decoupled ? 1 - rate * options.lr_scale * options.weight_decay : 1)) {}
};

/// The update of Adam and AdamW with the moments m and v.
template <class T>
struct AdamUpdate {
  AdamCoefficients<T> by;

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m, T& v) const {
    const T g = grad + by.coupled_decay * p;
    m = by.beta1 * m + by.one_minus_beta1 * g;
    v = by.beta2 * v + by.one_minus_beta2 * g * g;
    p = by.decay_factor * p - by.step_size * m / (std::sqrt(v) * by.inverse_root_correction2 + by.epsilon);
  }
};

/// The update of RMSprop with the momentum m.
template <class T>
struct RmsPropUpdate {
  AdamCoefficients<T> by;

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m, T& v) const {
    const T g = grad + by.coupled_decay * p;
    v = by.beta2 * v + by.one_minus_beta2 * g * g;
    m = by.beta1 * m + g / (std::sqrt(v) + by.epsilon);
    p -= by.lr * m;
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

/// The pointers of a LossScaleView whose scale has type T.
template <class T>
struct LossScaleNumbers {
  T* scale;
  std::int32_t* good_steps;
  std::int32_t* skipped;
  std::int32_t* failed;

  explicit LossScaleNumbers(const LossScaleView& view)
      : scale(view.scale.as<T>()),
        good_steps(view.good_steps.as<std::int32_t>()),
        skipped(view.skipped.as<std::int32_t>()),
        failed(view.failed.as<std::int32_t>()) {}

  /// Updates the scale and the counters after a step, as described in kernels/optimizer_step.h.
  CONVOY_HOST_DEVICE void update(bool overflowed, const LossScaleOptions& options) const {
    const double now = *scale;
    if (overflowed) {
      if (now <= options.minimum) *failed = 1;
      const double lower = now * options.backoff;
      *scale = static_cast<T>(lower > options.minimum ? lower : options.minimum);
      *good_steps = 0;
      ++*skipped;
    } else if (++*good_steps >= options.interval) {
      const double higher = now * options.growth;
      *scale = static_cast<T>(higher < options.maximum ? higher : options.maximum);
      *good_steps = 0;
    }
  }
};

// The numbers of a step of Muon, shared by the CPU loops and the CUDA kernels. See kernels/muon_step.h for
// the formulas.

/// The gradient's part of a step for one element. T is the parameter's type.
template <class T>
struct MuonDirection {
  T grad_scale, momentum;
  bool nesterov;

  /// Returns the direction before it is divided by its norm, from the gradient and the new momentum.
  CONVOY_HOST_DEVICE T direction(T gradient, T m) const {
    return nesterov ? grad_scale * gradient + momentum * m : m;
  }
  /// Returns the new momentum.
  CONVOY_HOST_DEVICE T next_momentum(T gradient, T m) const { return momentum * m + grad_scale * gradient; }
};

/// What a step multiplies a parameter by: rescales it to the norm `target`, or lets it decay if target is 0.
struct MuonKeep {
  double target;  // sqrt(rows) with MuonOptions::normalize, else 0
  double decay;   // lr_scale weight_decay

  MuonKeep() = default;
  MuonKeep(const MuonSlot& slot, const MuonOptions& options)
      : target(options.normalize ? std::sqrt(static_cast<double>(slot.parameter.shape[0])) : 0),
        decay(options.lr_scale * options.weight_decay) {}
  /// Returns the factor for a learning rate and the parameter's norm, which counts only if target is not 0.
  CONVOY_HOST_DEVICE double factor(double lr, double norm) const {
    if (target == 0) return 1 - lr * decay;
    return target / (norm < kMuonEpsilon ? kMuonEpsilon : norm);  // this order of comparison preserves NaN
  }
};

/// Returns the factor that divides a direction by its norm.
CONVOY_HOST_DEVICE inline double muon_inverse_norm(double norm) {
  return 1 / (norm < kMuonEpsilon ? kMuonEpsilon : norm);
}

}  // namespace convoy::kernels
