// The GPU's Math of kernels/shared/elementwise_functions.h.
#pragma once

#include <cmath>

#include "convoy/kernels/cuda/primitives/normal_distribution.h"

namespace convoy::kernels::cuda {

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
