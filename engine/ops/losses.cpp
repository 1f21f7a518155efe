#include "convoy/engine/ops/losses.h"

#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/kernels/losses.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {
namespace {

using kernels::ElementLoss;

/// The floating-point operations of a loss and its derivatives per element. A function such as exp counts as
/// one.
struct LossFlops {
  std::int64_t loss, by_x, by_target;
};

Variable loss_of(std::string_view name, ElementLoss loss, LossFlops flops, const Variable& x,
                 const Variable& target, Reduction reduction) {
  detail::check_floating(name, x);
  detail::check_same_shape(name, x, target);
  const std::int64_t count = x.shape().numel();
  check(reduction != Reduction::mean || count > 0, "{}: input {} has no elements, expected some for a mean",
        name, x.shape().text());
  const NamedRange range(name);
  wait_ready(x, target);
  const bool reduces = reduction != Reduction::none;
  const double factor = reduction == Reduction::mean ? 1 / static_cast<double>(count) : 1;
  const Tensor y =
      Tensor::empty(reduces ? Shape{1} : x.shape(), x.dtype(), detail::result_context(x, target));
  on(y.stream(), [&](auto& s) {
    const View in = x.value().view(), targets = target.value().view();
    if (reduces) {
      kernels::element_loss_sum(s, loss, in, targets, factor, y.view());
    } else {
      kernels::element_loss(s, loss, in, targets, y.view());
    }
  });

  const std::int64_t each = reduces ? 0 : 1;  // arrays of the shape of x that y and dy are
  OpCost cost{.forward = detail::cost_of(x, {.flops = flops.loss + 1 - each, .reads = 2, .writes = each})};
  if (x.requires_grad())
    cost.backward += detail::cost_of(x, {.flops = flops.by_x + 1, .reads = 2 + each, .writes = 1});
  if (target.requires_grad())
    cost.backward += detail::cost_of(x, {.flops = flops.by_target + 1, .reads = 2 + each, .writes = 1});
  return record(
      name, y, {x, target},
      [x = x.value(), target = target.value(), loss, factor](const Tensor& dy, std::span<GradSlot> slots) {
        // In this order: x may be its own target, and then the second kernel accumulates.
        const GradView dx = slots[0].claim();
        const GradView dtarget = slots[1].claim();
        on(dy.stream(), [&](auto& s) {
          kernels::element_loss_backward(s, loss, dy.view(), factor, x.view(), target.view(), dx, dtarget);
        });
      },
      cost);
}

}  // namespace

Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction) {
  return loss_of("mse_loss", ElementLoss::squared_error, {.loss = 2, .by_x = 2, .by_target = 2}, x, target,
                 reduction);
}

Variable binary_cross_entropy_with_logits(const Variable& logits, const Variable& target,
                                          Reduction reduction) {
  return loss_of("binary_cross_entropy_with_logits", ElementLoss::binary_cross_entropy_with_logits,
                 {.loss = 7, .by_x = 5, .by_target = 1}, logits, target, reduction);
}

Variable kl_divergence(const Variable& log_p, const Variable& q, Reduction reduction) {
  return loss_of("kl_divergence", ElementLoss::kl_divergence, {.loss = 3, .by_x = 1, .by_target = 3}, log_p,
                 q, reduction);
}

}  // namespace convoy
