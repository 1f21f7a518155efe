#include "convoy/engine/ops/checks.h"
#include "convoy/engine/ops/cost.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/ops/relu_gradient.h"
#include "convoy/kernels/matmul.h"
#include "convoy/kernels/reduce.h"

namespace convoy {

// c = a b      da = dc b^T      db = a^T dc
Variable matmul(const Variable& a, const Variable& b) {
  detail::check_floating("matmul", a);
  detail::check_alike("matmul", a, b);
  detail::check_rank("matmul", "left factor", a.shape(), 2);
  detail::check_rank("matmul", "right factor", b.shape(), 2);
  check(a.shape()[1] == b.shape()[0], "matmul: {} times {}: inner sizes differ", a.shape().text(),
        b.shape().text());
  wait_ready(a, b);
  Tensor c = Tensor::empty({a.shape()[0], b.shape()[1]}, a.dtype(), detail::result_context(a, b));
  on(c.stream(),
     [&](auto& s) { kernels::matmul(s, a.value().view(), b.value().view(), GradView(c.view())); });
  return record(
      "matmul", c, {a, b},
      [a = a.value(), b = b.value()](const Tensor& dc, std::span<GradSlot> slots) {
        on(dc.stream(), [&](auto& s) {
          if (slots[0].wanted())
            kernels::matmul(s, dc.view(), b.view(), slots[0].claim(), {.transpose_b = true});
          if (slots[1].wanted())
            kernels::matmul(s, a.view(), dc.view(), slots[1].claim(), {.transpose_a = true});
        });
      },
      detail::gemm_cost(2 * c.numel() * a.shape()[1], a, b, c));
}

// y = x w^T + b      dx = g w      dw = g^T x      db = column sums of g
// with g = dy, or dy [y > 0] if the op ends in a ReLU.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, bool with_relu) {
  detail::check_floating("linear", x);
  detail::check_alike("linear", x, weight);
  detail::check_rank("linear", "input", x.shape(), 2);
  detail::check_rank("linear", "weight", weight.shape(), 2);
  check(x.shape()[1] == weight.shape()[1], "linear: input {} has {} features, weight {} expects {}",
        x.shape().text(), x.shape()[1], weight.shape().text(), weight.shape()[1]);
  if (bias.defined()) detail::check_vector("linear", "bias", bias, x, weight.shape()[0]);

  wait_ready(x, weight, bias);
  Tensor y =
      Tensor::empty({x.shape()[0], weight.shape()[0]}, x.dtype(), detail::result_context(x, weight, bias));
  on(y.stream(), [&](auto& s) {
    kernels::linear_forward(s, x.value().view(), weight.value().view(),
                            bias.defined() ? bias.value().view() : View{}, y.view(), with_relu);
  });
  std::vector<Variable> inputs = {x, weight};
  if (bias.defined()) inputs.push_back(bias);
  const int passes = (with_relu ? 3 : 0) + (bias.requires_grad() ? 1 : 0);
  return record(
      "linear", y, std::move(inputs),
      [x = x.value(), w = weight.value(), y = with_relu ? y : Tensor()](const Tensor& dy,
                                                                        std::span<GradSlot> slots) {
        const Tensor g = detail::before_relu(dy, y);
        on(dy.stream(), [&](auto& s) {
          if (slots[0].wanted()) kernels::matmul(s, g.view(), w.view(), slots[0].claim());
          if (slots[1].wanted())
            kernels::matmul(s, g.view(), x.view(), slots[1].claim(), {.transpose_a = true});
          if (slots.size() > 2 && slots[2].wanted()) kernels::sum_rows(s, g.view(), slots[2].claim());
        });
      },
      detail::gemm_cost(2 * y.numel() * x.shape()[1], x, weight, y, passes));
}

}  // namespace convoy
