#include "convoy/engine/optim/newton_schulz.h"

#include <algorithm>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/matmul.h"

namespace convoy::optim {
namespace {

// The coefficients have a steep slope at 0, which makes small singular values grow fast. The iteration does not
// converge to 1, but to an interval around it.
constexpr double kA = 3.4445, kB = -4.7750, kC = 2.0315;

}  // namespace

std::function<void(const Stream&)> newton_schulz_work(const Tensor& x, int steps) {
  check(x.shape().rank() == 3, "newton_schulz: found the shape {}, expected [batch, rows, columns]",
        x.shape().text());
  const std::int64_t rows = x.size(1), columns = x.size(2);
  if (x.numel() == 0) return [](const Stream&) {};
  const bool is_tall = rows > columns;
  const std::int64_t side = std::min(rows, columns);
  const Tensor square = Tensor::empty({x.size(0), side, side}, x.dtype(), x.context());  // A
  const Tensor polynomial = Tensor::empty_like(square);                                  // b A + c A^2
  const Tensor other = Tensor::empty_like(x);
  return [=](const Stream& stream) {
    // Each step computes X from one tensor to the other one.
    Tensor from = x, to = other;
    on(stream, [&](auto& s) {
      for (int step = 0; step < steps; ++step) {
        kernels::matmul(s, from.view(), from.view(), GradView(square.view()),
                        {.transpose_a = is_tall, .transpose_b = !is_tall});
        kernels::matmul_add(s, kC, square.view(), square.view(), kB, square.view(), polynomial.view());
        if (is_tall)
          kernels::matmul_add(s, 1, from.view(), polynomial.view(), kA, from.view(), to.view());
        else
          kernels::matmul_add(s, 1, polynomial.view(), from.view(), kA, from.view(), to.view());
        std::swap(from, to);
      }
      if (steps % 2 != 0) kernels::scale(s, from.view(), 1, GradView(x.view()));
    });
  };
}

void newton_schulz(const Tensor& x, int steps) { newton_schulz_work(x, steps)(x.stream()); }

}  // namespace convoy::optim
