// The CPU's Math of kernels/shared/elementwise_functions.h: vectorizable in f32, and the C library in f64.
#pragma once

#include "convoy/kernels/cpu/primitives/vector_math.h"

namespace convoy::kernels {

struct CpuMath {
  template <class T>
  static T sigmoid(T x) {
    return vector_math::sigmoid(x);
  }
  template <class T>
  static T logistic(T x) {
    return vector_math::sigmoid(x);
  }
  template <class T>
  static T tanh(T x) {
    return vector_math::tanh(x);
  }
  template <class T>
  static T gelu(T x) {
    return x * vector_math::normal_cdf(x);
  }
  template <class T>
  static T gelu_derivative(T x) {
    return vector_math::normal_cdf(x) + x * vector_math::normal_density(x);
  }
  template <class T>
  static T log_one_plus_exp(T x) {
    return vector_math::log_one_plus_exp(x);
  }
};

}  // namespace convoy::kernels
