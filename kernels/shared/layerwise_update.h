// The updates of LARS and LAMB, shared by the CPU loops and the CUDA kernels. `grad` is the gradient after scaling.
// See kernels/layerwise_step.h for the formulas. An update has two parts: measured() computes the number of an element
// whose norm decides the trust ratio, and apply() steps the element by that ratio.
#pragma once

#include <cmath>

#include "convoy/kernels/layerwise_step.h"

namespace convoy::kernels {

/// The update of LARS with momentum m.
template <class T>
struct LarsUpdate {
  using Options = LarsOptions;
  static constexpr int kStates = 1;
  static constexpr bool kMeasureWrites = false;  // whether measured() changes states
  T lr, momentum, weight_decay;
  double trust;

  CONVOY_HOST_DEVICE LarsUpdate(const LarsOptions& options, double rate, double /*step*/)
      : lr(static_cast<T>(rate * options.lr_scale)),
        momentum(static_cast<T>(options.momentum)),
        weight_decay(static_cast<T>(options.weight_decay)),
        trust(options.trust) {}
  CONVOY_HOST_DEVICE T measured(T grad, T, T&) const { return grad; }
  CONVOY_HOST_DEVICE double ratio(double parameter_norm, double grad_norm) const {
    return trust * parameter_norm / (grad_norm + static_cast<double>(weight_decay) * parameter_norm);
  }
  CONVOY_HOST_DEVICE void apply(T grad, T& p, T& m, T ratio) const {
    m = momentum * m + lr * ratio * (grad + weight_decay * p);
    p -= m;
  }
};

/// The update of LAMB with the moments m and v.
template <class T>
struct LambUpdate {
  using Options = LambOptions;
  static constexpr int kStates = 2;
  static constexpr bool kMeasureWrites = true;
  T lr, beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon, weight_decay;
  T inverse_correction1, inverse_root_correction2;  // 1 / (1 - beta1^step), 1 / sqrt(1 - beta2^step)

  CONVOY_HOST_DEVICE LambUpdate(const LambOptions& options, double rate, double step)
      : lr(static_cast<T>(rate * options.lr_scale)),
        beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        epsilon(static_cast<T>(options.epsilon)),
        weight_decay(static_cast<T>(options.weight_decay)),
        inverse_correction1(static_cast<T>(1 / (1 - std::pow(options.beta1, step)))),
        inverse_root_correction2(static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, step)))) {}
  CONVOY_HOST_DEVICE T direction(T p, T m, T v) const {
    return m * inverse_correction1 / (std::sqrt(v) * inverse_root_correction2 + epsilon) + weight_decay * p;
  }
  CONVOY_HOST_DEVICE T measured(T grad, T p, T& m, T& v) const {
    m = beta1 * m + one_minus_beta1 * grad;
    v = beta2 * v + one_minus_beta2 * grad * grad;
    return direction(p, m, v);
  }
  CONVOY_HOST_DEVICE double ratio(double parameter_norm, double direction_norm) const {
    return parameter_norm / direction_norm;
  }
  CONVOY_HOST_DEVICE void apply(T /*grad*/, T& p, T& m, T& v, T ratio) const {
    p -= lr * ratio * direction(p, m, v);
  }
};

/// The sums of the squares of a parameter and of the measured numbers.
struct LayerSquares {
  double parameter = 0, measured = 0;

  /// Adds the squares of one element.
  template <class T>
  CONVOY_HOST_DEVICE void add(T p, T number) {
    const auto x = static_cast<double>(p), y = static_cast<double>(number);
    parameter += x * x;
    measured += y * y;
  }
  /// Returns the trust ratio: that of the update, or 1 if a norm is 0. NaN is preserved.
  template <class Update>
  CONVOY_HOST_DEVICE double trust_ratio(const Update& update) const {
    return parameter == 0 || measured == 0 ? 1 : update.ratio(std::sqrt(parameter), std::sqrt(measured));
  }
};

}  // namespace convoy::kernels
