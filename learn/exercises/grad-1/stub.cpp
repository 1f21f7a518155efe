#include <cstddef>
#include <span>

// The loss is a number L that depends on all values. dz is the gradient of z: dz[i] = dL/dz[i]. A backward function gets it,
// and adds to the gradients of the inputs of its operation what this use of them contributes. Other operations may use the
// same inputs, so there may be values in dx and dy already.

// z[i] = x[i] y[i]
void mul_backward(std::span<const double> x, std::span<const double> y, std::span<const double> dz,
                  std::span<double> dx, std::span<double> dy) {
  // TODO
}

// z[i] = exp(x[i]). z is given, so that nothing has to be computed twice.
void exp_backward(std::span<const double> z, std::span<const double> dz, std::span<double> dx) {
  // TODO
}

// c = a b, row after row: a has m x k elements, b k x n, and c m x n.
void matmul_backward(std::span<const double> a, std::span<const double> b, std::span<const double> dc,
                     std::span<double> da, std::span<double> db, int m, int k, int n) {
  // TODO
}
