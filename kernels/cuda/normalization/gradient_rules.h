// What batch norm's backward pass computes per channel, from the sums of g and of g (x - mean) over the rows.
// Kernels that compute these sums share it.
#pragma once

#include <cmath>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/cuda/primitives/element.h"

namespace convoy::kernels::cuda {

/// A gradient [C] and its mode; `values` is null if the gradient is unwanted.
template <class C>
struct ChannelGradient {
  C* values;
  bool adds;

  explicit ChannelGradient(const GradView& view)
      : values(view.as<C>()), adds(view.mode == GradMode::accumulate) {}
  /// Returns the value to which put() adds.
  __device__ double before(std::int64_t c) const {
    return values != nullptr && adds ? static_cast<double>(values[c]) : 0;
  }
  __device__ void put(std::int64_t c, double before, double value) const {
    if (values != nullptr) values[c] = static_cast<C>(adds ? before + value : value);
  }
};

/// The coefficients [C] of dx = direct g + (slope (x - mean) + constant). If the statistics are constants,
/// slope and constant are null and dx = direct g.
template <class C>
struct ChannelFactors {
  C *direct, *slope, *constant;
};

/// What is computed from the two sums of a channel, and from what else.
template <class C>
struct GradientRules {
  const C *gamma, *spread;  // spread: inverse_std, or the running variance
  bool spread_is_var;
  double epsilon;
  ChannelGradient<C> dgamma, dbeta;
  ChannelFactors<C> factors;  // direct is null if dx is unwanted
  double* shard_sums;         // n and both sums, [1 + 2C]; or null

  __device__ double inverse_std_of(std::int64_t c) const {
    const double given = static_cast<double>(spread[c]);
    return spread_is_var ? 1 / std::sqrt(given + epsilon) : given;
  }
  /// Stores all results for channel c of n rows. Loads everything before it stores anything, so that the
  /// latencies of the loads overlap.
  __device__ void put(std::int64_t c, std::int64_t channels, double n, double sum, double dot) const {
    const double inverse_std = inverse_std_of(c), scale = scale_of(c);
    const double old_dgamma = dgamma.before(c), old_dbeta = dbeta.before(c);
    dgamma.put(c, old_dgamma, dot * inverse_std);
    dbeta.put(c, old_dbeta, sum);
    put_factors(c, n, sum, dot, inverse_std, scale);
    if (shard_sums == nullptr) return;
    if (c == 0) shard_sums[0] = n;
    shard_sums[1 + c] = sum;
    shard_sums[1 + channels + c] = dot;
  }
  /// Stores the factors alone.
  __device__ void put_factors(std::int64_t c, double n, double sum, double dot) const {
    put_factors(c, n, sum, dot, inverse_std_of(c), scale_of(c));
  }

 private:
  __device__ double scale_of(std::int64_t c) const {
    return factors.direct != nullptr ? static_cast<double>(gamma[c]) : 0;
  }
  __device__ void put_factors(std::int64_t c, double n, double sum, double dot, double inverse_std,
                              double scale) const {
    if (factors.direct == nullptr) return;
    const double direct = scale * inverse_std;
    factors.direct[c] = static_cast<C>(direct);
    if (factors.slope == nullptr) return;
    factors.slope[c] = static_cast<C>(-direct * inverse_std * inverse_std * dot / n);
    factors.constant[c] = static_cast<C>(-direct * sum / n);
  }
};

}  // namespace convoy::kernels::cuda
