// The functions of one element behind kernels/broadcast.h.
#pragma once

#include "convoy/kernels/broadcast.h"

namespace convoy::kernels {

struct Add {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return x + y;
  }
};

struct Subtract {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return x - y;
  }
};

struct Times {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return x * y;
  }
};

struct Divide {
  template <class T>
  CONVOY_HOST_DEVICE T operator()(T x, T y) const {
    return x / y;
  }
};

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

/// Calls f with the function object of `op`.
template <class F>
void dispatch_function(BinaryOp op, F f) {
  switch (op) {
    case BinaryOp::add: return f(Add{});
    case BinaryOp::sub: return f(Subtract{});
    case BinaryOp::mul: return f(Times{});
    case BinaryOp::div: return f(Divide{});
    case BinaryOp::maximum: return f(Maximum{});
    case BinaryOp::minimum: return f(Minimum{});
  }
}
template <class F>
void dispatch_function(BinaryGradient gradient, F f) {
  switch (gradient) {
    case BinaryGradient::divisor: return f(DivisorGradient{});
    case BinaryGradient::greater: return f(GreaterGradient{});
    case BinaryGradient::less: return f(LessGradient{});
  }
}

}  // namespace convoy::kernels
