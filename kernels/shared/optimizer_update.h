// The update of one element by each optimizer, shared by the CPU loops and the CUDA kernels. Constants are
// computed in f64 and stored in the element type T, so that a loop over floats contains no doubles. `grad` is
// the gradient after scaling. See kernels/optimizer_step.h for the formulas and references.
#pragma once

#include <array>
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
  static constexpr int kStates = 0;
  SgdCoefficients<T> by;

  CONVOY_HOST_DEVICE void operator()(T grad, T& p) const { p -= by.lr * (grad + by.weight_decay * p); }
};

/// The update of SGD with momentum m.
template <class T, bool kNesterov>
struct MomentumUpdate {
  static constexpr int kStates = 1;
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
  T beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  T step_size, inverse_root_correction2;  // lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step)
  // Weight decay of Adam: g += coupled_decay p. Weight decay of AdamW: p *= decay_factor.
  T coupled_decay, decay_factor;

  CONVOY_HOST_DEVICE AdamCoefficients(const AdamOptions& options, double rate, double step)
      : beta1(static_cast<T>(options.beta1)),
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
  static constexpr int kStates = 2;
  AdamCoefficients<T> by;

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m, T& v) const {
    const T g = grad + by.coupled_decay * p;
    m = by.beta1 * m + by.one_minus_beta1 * g;
    v = by.beta2 * v + by.one_minus_beta2 * g * g;
    p = by.decay_factor * p - by.step_size * m / (std::sqrt(v) * by.inverse_root_correction2 + by.epsilon);
  }
};

// LARS and LAMB adapt the step to each parameter. measured() computes the number of an element whose norm
// decides the trust ratio, and apply() steps the element by that ratio. states[k][i] is a state of the
// element.

inline std::array<View, 1> states_of(const SgdSlot& slot) { return {slot.momentum}; }
inline std::array<View, 2> states_of(const AdamSlot& slot) { return {slot.first_moment, slot.second_moment}; }

template <class T>
struct LarsUpdate {
  using Options = LarsOptions;
  static constexpr int kStates = 1;
  SgdCoefficients<T> by;
  double trust;
  bool adapts;

  CONVOY_HOST_DEVICE LarsUpdate(const LarsOptions& options, double rate, double step)
      : by(options, rate, step), trust(options.trust), adapts(options.adapts) {}
  CONVOY_HOST_DEVICE T measured(T grad, T /*p*/, T* const* /*states*/, std::int64_t /*i*/) const {
    return grad;
  }
  CONVOY_HOST_DEVICE double ratio(double parameter_norm, double grad_norm) const {
    return trust * parameter_norm / (grad_norm + static_cast<double>(by.weight_decay) * parameter_norm);
  }
  CONVOY_HOST_DEVICE void apply(T grad, T& p, T* const* states, std::int64_t i, T ratio) const {
    T& m = states[0][i];
    m = by.momentum * m + by.lr * ratio * (grad + by.weight_decay * p);
    p -= m;
  }
};

template <class T>
struct LambUpdate {
  using Options = LambOptions;
  static constexpr int kStates = 2;
  AdamCoefficients<T> by;  // at a rate of 1
  T lr;
  bool adapts;

  CONVOY_HOST_DEVICE static AdamOptions unscaled(AdamOptions options) {
    options.lr_scale = 1;
    return options;
  }
  CONVOY_HOST_DEVICE LambUpdate(const LambOptions& options, double rate, double step)
      : by(unscaled(options), 1, step), lr(static_cast<T>(rate * options.lr_scale)), adapts(options.adapts) {}
  CONVOY_HOST_DEVICE T direction(T p, T m, T v) const {
    return m * by.step_size / (std::sqrt(v) * by.inverse_root_correction2 + by.epsilon) +
           by.coupled_decay * p;
  }
  CONVOY_HOST_DEVICE T measured(T grad, T p, T* const* states, std::int64_t i) const {
    T &m = states[0][i], &v = states[1][i];
    m = by.beta1 * m + by.one_minus_beta1 * grad;
    v = by.beta2 * v + by.one_minus_beta2 * grad * grad;
    return direction(p, m, v);
  }
  CONVOY_HOST_DEVICE double ratio(double parameter_norm, double direction_norm) const {
    return parameter_norm / direction_norm;
  }
  CONVOY_HOST_DEVICE void apply(T /*grad*/, T& p, T* const* states, std::int64_t i, T ratio) const {
    p -= lr * ratio * direction(p, states[0][i], states[1][i]);
  }
};

/// The sums of the squares of a parameter and of the measured numbers.
struct LayerSquares {
  double parameter = 0, measured = 0;

  CONVOY_HOST_DEVICE void add(double p, double number) {
    parameter += p * p;
    measured += number * number;
  }
  CONVOY_HOST_DEVICE LayerSquares& operator+=(const LayerSquares& other) {
    parameter += other.parameter;
    measured += other.measured;
    return *this;
  }
  /// Returns the trust ratio: that of the update, or 1 if a norm is 0. NaN is preserved.
  template <class Update>
  CONVOY_HOST_DEVICE double trust_ratio(const Update& update) const {
    if (!update.adapts || parameter == 0 || measured == 0) return 1;
    return update.ratio(std::sqrt(parameter), std::sqrt(measured));
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
