// What batch norm stores per channel once the moments of a batch are known. Kernels that compute moments
// share it.
#pragma once

#include <cmath>

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/cuda/primitives/element.h"

namespace convoy::kernels::cuda {

/// The per-channel arguments of the forward functions, and the coefficients of y = (x - mean) factor +
/// offset.
template <class T>
struct Statistics {
  using C = compute_t<T>;
  const C *gamma, *beta;
  C *mean, *inverse_std, *running_mean, *running_var;
  C *factor, *offset;
  double epsilon, momentum;

  /// Sets the statistics and coefficients of channel c from the mean and the (biased) variance of its n
  /// values. Loads everything before it stores anything, so that the latencies of the loads overlap.
  __device__ void set(std::int64_t c, double n, double batch_mean, double batch_var) const {
    const double shift = static_cast<double>(beta[c]), old_mean = static_cast<double>(running_mean[c]),
                 old_var = static_cast<double>(running_var[c]);
    const double batch_inverse_std = 1 / std::sqrt(batch_var + epsilon);
    const double scale = static_cast<double>(gamma[c]) * batch_inverse_std;
    const C rounded = static_cast<C>(batch_mean);
    mean[c] = rounded;
    inverse_std[c] = static_cast<C>(batch_inverse_std);
    factor[c] = static_cast<C>(scale);
    // Compensates for the rounding of the mean, so that a large mean cancels exactly.
    offset[c] = static_cast<C>(shift - (batch_mean - static_cast<double>(rounded)) * scale);
    if (n < 2) return;  // possible for shards; otherwise n = 1 is an error of the caller
    running_mean[c] = updated(old_mean, batch_mean);
    running_var[c] = updated(old_var, batch_var * n / (n - 1));
  }
  __device__ C updated(double running, double batch) const {
    return static_cast<C>((1 - momentum) * running + momentum * batch);
  }
};

/// The arguments of a forward function. `coefficients` are factor and offset, [2, C].
template <class T>
Statistics<T> statistics_of(const ConstView& gamma, const ConstView& beta, const View& mean,
                            const View& inverse_std, const View& coefficients, const View& running_mean,
                            const View& running_var, const BatchNormOptions& options) {
  using C = compute_t<T>;
  C* const factor = coefficients.as<C>();
  return {gamma.as<C>(),       beta.as<C>(), mean.as<C>(),          inverse_std.as<C>(), running_mean.as<C>(),
          running_var.as<C>(), factor,       factor + mean.numel(), options.epsilon,     options.momentum};
}

}  // namespace convoy::kernels::cuda
