// What an optimizer does to one element, written once: the CPU's loop and the GPU's kernel call the same
// functions. The constants are computed in f64 and then held in the element type T, so that a loop over
// floats stays one of floats. `grad` is the gradient after scaling. Formulas and sources:
// kernels/optimizer_step.h.
#pragma once

#include <cmath>

#include "kernels/optimizer_step.h"

namespace convoy {

template <class T>
struct SgdUpdate {
  T lr, weight_decay;

  explicit SgdUpdate(const SgdOptions& options)
      : lr(static_cast<T>(options.lr)), weight_decay(static_cast<T>(options.weight_decay)) {}

  CONVOY_HOST_DEVICE void operator()(T grad, T& p) const { p -= lr * (grad + weight_decay * p); }
};

template <class T, bool kNesterov>
struct MomentumUpdate {
  T lr, momentum, weight_decay;

  explicit MomentumUpdate(const SgdOptions& options)
      : lr(static_cast<T>(options.lr)),
        momentum(static_cast<T>(options.momentum)),
        weight_decay(static_cast<T>(options.weight_decay)) {}

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m) const {
    const T g = grad + weight_decay * p;
    m = momentum * m + g;
    p -= lr * (kNesterov ? g + momentum * m : m);
  }
};

template <class T>
struct AdamUpdate {
  T beta1, one_minus_beta1, beta2, one_minus_beta2, epsilon;
  T step_size, inverse_root_correction2;  // lr / (1 - beta1^step), 1 / sqrt(1 - beta2^step)
  T joined_decay, kept;                   // the two kinds of weight decay: g += joined_decay p;  p *= kept

  explicit AdamUpdate(const AdamOptions& options)
      : beta1(static_cast<T>(options.beta1)),
        one_minus_beta1(static_cast<T>(1 - options.beta1)),
        beta2(static_cast<T>(options.beta2)),
        one_minus_beta2(static_cast<T>(1 - options.beta2)),
        epsilon(static_cast<T>(options.epsilon)),
        step_size(static_cast<T>(options.lr / (1 - std::pow(options.beta1, options.step)))),
        inverse_root_correction2(static_cast<T>(1 / std::sqrt(1 - std::pow(options.beta2, options.step)))),
        joined_decay(static_cast<T>(options.decoupled ? 0 : options.weight_decay)),
        kept(static_cast<T>(options.decoupled ? 1 - options.lr * options.weight_decay : 1)) {}

  CONVOY_HOST_DEVICE void operator()(T grad, T& p, T& m, T& v) const {
    const T g = grad + joined_decay * p;
    m = beta1 * m + one_minus_beta1 * g;
    v = beta2 * v + one_minus_beta2 * g * g;
    p = kept * p - step_size * m / (std::sqrt(v) * inverse_root_correction2 + epsilon);
  }
};

}  // namespace convoy
