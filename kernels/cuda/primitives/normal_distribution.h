// The normal distribution, and the GELU x Phi(x) (Hendrycks and Gimpel, arXiv:1606.08415).
#pragma once

#include <cmath>
#include <numbers>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/shared/normal_quotient.h"

namespace convoy::kernels::cuda {

/// The distribution function Phi of the standard normal distribution, and its density Phi', at one point.
template <class T>
struct NormalValues {
  T cdf, density;
};

/// Uses erfc, which is accurate where Phi is tiny; 1 + erf would cancel there.
__device__ inline NormalValues<double> normal_values(double x) {
  return {0.5 * std::erfc(-x * (std::numbers::sqrt2 / 2)),
          std::numbers::inv_sqrtpi * std::numbers::sqrt2 / 2 * std::exp(-x * x / 2)};
}
/// Computes both values from one exponential, where erfc would compute another one. Rounding x^2 and its
/// multiple costs up to x^2 / 2 units in the last place. A NaN becomes a number, which gelu() multiplies by
/// NaN.
template <bool kShort>
__device__ NormalValues<float> normal_values_by(float x) {
  constexpr float kEnd = 14.5F;  // the density rounds to 0 for larger |x|
  constexpr float kDensityAtZero = std::numbers::inv_sqrtpi_v<float> * std::numbers::sqrt2_v<float> / 2;
  const float size = std::fmin(std::fabs(x), kEnd);
  const float power = std::exp2(size * size * (-0.5F * std::numbers::log2e_v<float>));
  const NormalQuotient quotient = kShort ? short_normal_quotient(size) : normal_quotient(size);
  const float tail = power * __fdividef(quotient.above, quotient.below);
  return {x > 0 ? 1 - tail : tail, power * kDensityAtZero};
}
__device__ inline NormalValues<float> normal_values(float x) { return normal_values_by<false>(x); }
__device__ inline NormalValues<float> normal_values(float16 x) { return normal_values_by<true>(widen(x)); }
__device__ inline NormalValues<float> normal_values(bfloat16 x) { return normal_values_by<true>(widen(x)); }

template <class T>
__device__ compute_t<T> gelu(T x) {
  return widen(x) * normal_values(x).cdf;
}

/// Returns the derivative of gelu(x).
template <class T>
__device__ compute_t<T> gelu_derivative(T x) {
  const auto normal = normal_values(x);
  return std::fma(widen(x), normal.density, normal.cdf);
}

// The GPU's Math of kernels/shared/elementwise_functions.h.

struct GpuMath {
  template <class T>
  __device__ static T sigmoid(T x) {
    return T{1} / (T{1} + std::exp(-x));
  }
  /// The sigmoid without overflow, at the price of a comparison.
  template <class T>
  __device__ static T logistic(T x) {
    const T small = std::exp(-std::abs(x));
    return (x < 0 ? small : T{1}) / (1 + small);
  }
  template <class T>
  __device__ static T tanh(T x) {
    return std::tanh(x);
  }
  template <class T>
  __device__ static T gelu(T x) {
    return cuda::gelu(x);
  }
  template <class T>
  __device__ static T gelu_derivative(T x) {
    return cuda::gelu_derivative(x);
  }
  template <class T>
  __device__ static T log_one_plus_exp(T x) {
    return std::log1p(std::exp(-std::abs(x)));
  }
};

}  // namespace convoy::kernels::cuda
