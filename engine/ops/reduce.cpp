#include "convoy/kernels/reduce.h"

#include "convoy/engine/ops/checks.h"
#include "convoy/engine/ops/cost.h"
#include "convoy/engine/ops/ops.h"

namespace convoy {

Variable sum(const Variable& x) {
  detail::check_floating("sum", x);
  wait_ready(x);
  Tensor y = Tensor::empty({1}, x.dtype(), x.context());
  on(y.stream(), [&](auto& s) { kernels::sum(s, x.value().view(), GradView(y.view())); });
  return record("sum", y, {x},
                [](const Tensor& dy, std::span<GradSlot> dx) {
                  on(dy.stream(),
                     [&](auto& s) { kernels::broadcast_scalar(s, dy.view(), 1, dx[0].claim()); });
                },
                {.forward = detail::cost_of(x, {.flops = 1, .reads = 1}),
                 .backward = detail::cost_of(x, {.writes = 1})});
}

Variable mean(const Variable& x) {
  check(x.value().numel() > 0, "mean: input {} has no elements", x.shape().text());
  return scale(sum(x), 1.0 / static_cast<double>(x.value().numel()));
}

}  // namespace convoy
