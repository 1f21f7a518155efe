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

struct Hardswish {
  template <class T>
  CONVOY_HOST_DEVICE T forward(T x) const {
    const T positive = T{0} > x + 3 ? T{0} : x + 3;  // propagates NaN, as in Relu
    return x * (positive > T{6} ? T{6} : positive) * T(1.0 / 6);
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

/// Calls f with the functions of `op`. p is the exponent of pow.
template <class Math, class F>
void dispatch_unary(UnaryOp op, double p, F f) {
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
  }
}

}  // namespace convoy::kernels
