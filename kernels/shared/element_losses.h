// The losses of one element behind kernels/losses.h. `Math` is as in elementwise_functions.h.
#pragma once

#include <cmath>

#include "convoy/kernels/losses.h"

namespace convoy::kernels {

struct SquaredError {
  template <class C>
  CONVOY_HOST_DEVICE static C loss(C x, C t) {
    return (x - t) * (x - t);
  }
  template <class C>
  CONVOY_HOST_DEVICE static C by_x(C x, C t) {
    return 2 * (x - t);
  }
  template <class C>
  CONVOY_HOST_DEVICE static C by_target(C x, C t) {
    return 2 * (t - x);
  }
};

// max(x, 0) - x t + log(1 + e^-|x|): no term overflows, and none cancels for large |x|. The first two are one
// product, because their difference is NaN for an infinite logit.
template <class Math>
struct BinaryCrossEntropy {
  template <class C>
  CONVOY_HOST_DEVICE static C loss(C x, C t) {
    return (x > 0 ? x * (1 - t) : -x * t) + Math::log_one_plus_exp(x);
  }
  template <class C>
  CONVOY_HOST_DEVICE static C by_x(C x, C t) {
    return Math::logistic(x) - t;
  }
  template <class C>
  CONVOY_HOST_DEVICE static C by_target(C x, C /*t*/) {
    return -x;
  }
};

struct KlDivergence {
  template <class C>
  CONVOY_HOST_DEVICE static C loss(C x, C t) {
    return t == 0 ? C{0} : t * (std::log(t) - x);
  }
  template <class C>
  CONVOY_HOST_DEVICE static C by_x(C /*x*/, C t) {
    return -t;
  }
  template <class C>
  CONVOY_HOST_DEVICE static C by_target(C x, C t) {
    return t == 0 ? C{0} : std::log(t) + 1 - x;
  }
};

/// Calls f with the functions of `loss`.
template <class Math, class F>
void dispatch_loss(ElementLoss loss, F f) {
  switch (loss) {
    case ElementLoss::squared_error: return f(SquaredError{});
    case ElementLoss::binary_cross_entropy_with_logits: return f(BinaryCrossEntropy<Math>{});
    case ElementLoss::kl_divergence: return f(KlDivergence{});
  }
}

}  // namespace convoy::kernels
