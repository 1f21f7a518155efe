// The functions of one element behind kernels/elementwise.h. They compute in the compute type. `Math` is the
// device's own arithmetic, that is the functions that the devices compute by different methods
// (kernels/cpu/primitives/vector_math.h, kernels/cuda/primitives/normal_distribution.h).
#pragma once

#include <cmath>

#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {

struct WeightedSum {
  double a, b;
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return static_cast<T>(a) * x + static_cast<T>(b) * y;
  }
};

struct Multiple {
  double a;
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x) const {
    return static_cast<T>(a) * x;
  }
};

struct AddScalar {
  double a;
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x) const {
    return x + static_cast<T>(a);
  }
};

// Each function of UnaryOp has forward(x), and backward(dy, v), where v is x or y as uses_output() says.

struct Relu {
  // This operand order propagates NaN: a ReLU must not hide a diverged training.
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return T{0} > x ? T{0} : x;
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T y) const {
    return y <= T{0} ? T{0} : dy;  // dy where y is NaN
  }
};

template <class Math>
struct Gelu {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return Math::gelu(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return dy * Math::gelu_derivative(x);
  }
};

template <class Math>
struct Silu {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return x * Math::sigmoid(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    const T s = Math::sigmoid(x);
    return dy * s * (1 + x * (1 - s));
  }
};

// NaN is not below the minimum, and has the gradient 0 in clamp and dy in hardtanh, as in PyTorch.
template <bool kPassesNan>
struct Clamp {
  double low, high;
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    const T raised = T(low) > x ? T(low) : x;
    return raised > T(high) ? T(high) : raised;
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    if (kPassesNan) return x <= T(low) || x >= T(high) ? T{0} : dy;
    return x > T(low) && x < T(high) ? dy : T{0};
  }
};

struct Hardswish {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return x * Clamp<false>{0, 6}.forward(x + 3) * T(1.0 / 6);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    const T slope = x * T(1.0 / 3) + T(0.5);
    return dy * (x <= T{-3} ? T{0} : x < T{3} ? slope : T{1});  // dy at NaN, as in PyTorch
  }
};

template <class Math>
struct Tanh {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return Math::tanh(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T y) const {
    return dy * (1 - y * y);
  }
};

template <class Math>
struct Sigmoid {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return Math::sigmoid(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T y) const {
    return dy * y * (1 - y);
  }
};

struct Exp {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return std::exp(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T y) const {
    return dy * y;
  }
};

struct Log {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return std::log(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return dy / x;
  }
};

struct Sqrt {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return std::sqrt(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T y) const {
    return dy / (2 * y);
  }
};

struct Abs {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return std::abs(x);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return x > T{0} ? dy : x < T{0} ? -dy : T{0} * dy;  // 0 where x is NaN
  }
};

struct Pow {
  double p;
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return power(x, static_cast<T>(p));
  }
  // x^0 has the gradient 0 everywhere, also where x^-1 is not finite.
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return p == 0 ? T{0} : dy * (static_cast<T>(p) * power(x, static_cast<T>(p - 1)));
  }

 private:
  // Roots of negative numbers are NaN, also of -Inf, for which std::pow returns Inf or 0.
  template <class T>
  CONVOY_HOST_DEVICE static T power(T x, T p) {
    if (p == T(0.5)) return std::sqrt(x);
    if (p == T(-0.5)) return 1 / std::sqrt(x);
    return std::pow(x, p);
  }
};

struct LeakyRelu {
  double slope;
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return x > T{0} ? x : T(slope) * x;
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return x > T{0} ? dy : T(slope) * dy;
  }
};

struct Elu {
  double alpha;
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return x < T{0} ? T(alpha) * std::expm1(x) : x;
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return x <= T{0} ? dy * (T(alpha) * std::exp(x)) : dy;
  }
};

template <class Math>
struct Softplus {
  double beta, threshold;
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    const T scaled = T(beta) * x, positive = T{0} > scaled ? T{0} : scaled;  // propagates NaN, as in Relu
    return scaled > T(threshold) ? x : (positive + Math::log_one_plus_exp(scaled)) / T(beta);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return T(beta) * x > T(threshold) ? dy : dy * Math::logistic(T(beta) * x);
  }
};

// (1 + tanh(u)) / 2 is the logistic function of 2 u, which does not cancel in the lower tail.
template <class Math>
struct GeluTanh {
  static constexpr double kTwice = 1.5957691216057308, kCubic = 0.044715;  // 2 sqrt(2 / pi)
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return x * Math::logistic(T(kTwice) * (x + T(kCubic) * x * x * x));
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    const T s = Math::logistic(T(kTwice) * (x + T(kCubic) * x * x * x));
    return dy * (s + x * s * (1 - s) * T(kTwice) * (1 + T(3 * kCubic) * x * x));
  }
};

struct Hardsigmoid {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    return Clamp<false>{0, 6}.forward(x + 3) * T(1.0 / 6);
  }
  template <class T>
  CONVOY_HOST_DEVICE T backward(T dy, T x) const {
    return x > T{-3} && x < T{3} ? dy * T(1.0 / 6) : T{0};
  }
};

// The two directions as function objects.
template <class Function>
struct UnaryForward {
  Function function;
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x) const {
    return function.forward(x);
  }
};
template <class Function>
struct UnaryBackward {
  Function function;
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dy, T saved) const {
    return function.backward(dy, saved);
  }
};

/// Calls f with the functions of `op`.
template <class Math, class F>
void dispatch_unary(UnaryOp op, UnaryNumbers numbers, F f) {
  const auto [p, q] = numbers;
  switch (op) {
    case UnaryOp::relu: return f(Relu{});
    case UnaryOp::gelu: return f(Gelu<Math>{});
    case UnaryOp::silu: return f(Silu<Math>{});
    case UnaryOp::hardswish: return f(Hardswish{});
    case UnaryOp::tanh: return f(Tanh<Math>{});
    case UnaryOp::sigmoid: return f(Sigmoid<Math>{});
    case UnaryOp::exp: return f(Exp{});
    case UnaryOp::log: return f(Log{});
    case UnaryOp::sqrt: return f(Sqrt{});
    case UnaryOp::abs: return f(Abs{});
    case UnaryOp::pow: return f(Pow{p});
    case UnaryOp::clamp: return f(Clamp<false>{p, q});
    case UnaryOp::hardtanh: return f(Clamp<true>{p, q});
    case UnaryOp::leaky_relu: return f(LeakyRelu{p});
    case UnaryOp::elu: return f(Elu{p});
    case UnaryOp::softplus: return f(Softplus<Math>{p, q});
    case UnaryOp::gelu_tanh: return f(GeluTanh<Math>{});
    case UnaryOp::hardsigmoid: return f(Hardsigmoid{});
  }
}

}  // namespace convoy::kernels
