// Elementwise arithmetic. Binary ops broadcast their operands by NumPy's rules: axes are aligned at the last
// one, and an axis that is missing or of size 1 is repeated. The gradient of a repeated operand is the sum
// over the repetitions. Operands have one floating-point type and one device. Other operands, and shapes that
// cannot be broadcast, throw UsageError. For threads and the meta device, see ops.h.
#pragma once

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Returns x + y.
Variable add(const Variable& x, const Variable& y);
/// Returns x - y.
Variable sub(const Variable& x, const Variable& y);
/// Returns x y.
Variable mul(const Variable& x, const Variable& y);
/// Returns x / y.
Variable div(const Variable& x, const Variable& y);
/// Returns the larger of x and y. Equal elements get half of the gradient each. NaN is propagated.
Variable maximum(const Variable& x, const Variable& y);
/// Returns the smaller of x and y. Equal elements get half of the gradient each. NaN is propagated.
Variable minimum(const Variable& x, const Variable& y);
/// Returns x where `condition`, u8, is not 0, and y elsewhere. All three are broadcast.
Variable where(const Tensor& condition, const Variable& x, const Variable& y);

/// Returns a x.
Variable scale(const Variable& x, double a);
/// Returns x + a.
Variable add_scalar(const Variable& x, double a);
/// Returns x^p. The gradient p x^(p - 1) is infinite at 0 for p < 1.
Variable pow(const Variable& x, double p);
/// Returns e^x.
Variable exp(const Variable& x);
/// Returns the natural logarithm.
Variable log(const Variable& x);
/// Returns the square root. Its gradient is infinite at 0.
Variable sqrt(const Variable& x);
/// Returns |x|, whose gradient is 0 at 0.
Variable abs(const Variable& x);

/// Returns add(x, y).
inline Variable operator+(const Variable& x, const Variable& y) { return add(x, y); }
/// Returns sub(x, y).
inline Variable operator-(const Variable& x, const Variable& y) { return sub(x, y); }
/// Returns mul(x, y).
inline Variable operator*(const Variable& x, const Variable& y) { return mul(x, y); }
/// Returns div(x, y).
inline Variable operator/(const Variable& x, const Variable& y) { return div(x, y); }
/// Returns -x.
inline Variable operator-(const Variable& x) { return scale(x, -1); }
/// Returns x + a.
inline Variable operator+(const Variable& x, double a) { return add_scalar(x, a); }
/// Returns a + x.
inline Variable operator+(double a, const Variable& x) { return add_scalar(x, a); }
/// Returns x - a.
inline Variable operator-(const Variable& x, double a) { return add_scalar(x, -a); }
/// Returns a - x.
inline Variable operator-(double a, const Variable& x) { return add_scalar(scale(x, -1), a); }
/// Returns a x.
inline Variable operator*(const Variable& x, double a) { return scale(x, a); }
/// Returns a x.
inline Variable operator*(double a, const Variable& x) { return scale(x, a); }
/// Returns x / a, computed as x (1 / a).
inline Variable operator/(const Variable& x, double a) { return scale(x, 1 / a); }
/// Returns a / x.
inline Variable operator/(double a, const Variable& x) { return scale(pow(x, -1), a); }

}  // namespace convoy
