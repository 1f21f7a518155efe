// The functions of one element behind kernels/broadcast.h. `Math` is as in elementwise_functions.h.
#pragma once

#include <cmath>
#include <functional>

#include "convoy/kernels/broadcast.h"

namespace convoy::kernels {

// x != x is true for NaN, which is the result if either operand is NaN.
struct Maximum {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return x > y || x != x ? x : y;
  }
};

struct Minimum {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return x < y || x != x ? x : y;
  }
};

struct SquaredError {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return (x - y) * (x - y);
  }
};

// max(x, 0) - x y + log(1 + e^-|x|): no term overflows, and none cancels for large |x|. The first two are one
// product, because their difference is NaN for an infinite logit.
template <class Math>
struct BinaryCrossEntropy {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return (x > 0 ? x * (1 - y) : -x * y) + Math::log_one_plus_exp(x);
  }
};

struct KlDivergence {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return y == 0 ? T{0} : y * (std::log(y) - x);
  }
};

struct DivisorGradient {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dz, T x, T y) const {
    return -dz * ((x / y) / y);  // y * y overflows where the quotient does not
  }
};

struct GreaterGradient {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dz, T x, T y) const {
    return x < y ? T{0} : x == y ? dz / 2 : dz;  // dz for both operands if one is NaN
  }
};

struct LessGradient {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dz, T x, T y) const {
    return x > y ? T{0} : x == y ? dz / 2 : dz;
  }
};

struct SquaredErrorGradient {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dz, T x, T y) const {
    return dz * (2 * (x - y));
  }
};

template <class Math>
struct LogitsGradient {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dz, T x, T y) const {
    return dz * (Math::logistic(x) - y);
  }
};

struct TargetOfKlGradient {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dz, T x, T y) const {
    return dz * (x == 0 ? T{0} : std::log(x) + 1 - y);
  }
};

struct NegativeGradient {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T dz, T /*x*/, T y) const {
    return dz * -y;
  }
};

/// Calls f with the function object of `op`.
template <class Math, class F>
void dispatch_function(BinaryOp op, F f) {
  switch (op) {
    case BinaryOp::add: return f(std::plus{});
    case BinaryOp::sub: return f(std::minus{});
    case BinaryOp::mul: return f(std::multiplies{});
    case BinaryOp::div: return f(std::divides{});
    case BinaryOp::maximum: return f(Maximum{});
    case BinaryOp::minimum: return f(Minimum{});
    case BinaryOp::squared_error: return f(SquaredError{});
    case BinaryOp::binary_cross_entropy_with_logits: return f(BinaryCrossEntropy<Math>{});
    case BinaryOp::kl_divergence: return f(KlDivergence{});
  }
}
template <class Math, class F>
void dispatch_function(BinaryGradient gradient, F f) {
  switch (gradient) {
    case BinaryGradient::divisor: return f(DivisorGradient{});
    case BinaryGradient::greater: return f(GreaterGradient{});
    case BinaryGradient::less: return f(LessGradient{});
    case BinaryGradient::squared_error: return f(SquaredErrorGradient{});
    case BinaryGradient::logits: return f(LogitsGradient<Math>{});
    case BinaryGradient::target_of_kl: return f(TargetOfKlGradient{});
    case BinaryGradient::negative: return f(NegativeGradient{});
  }
}

}  // namespace convoy::kernels
