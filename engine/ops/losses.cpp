#include "convoy/kernels/losses.h"
#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/softmax.h"

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
  const detail::OpScope scope(name, x, target);
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

namespace {

/// Checks the labels on the CPU only. On a GPU the check would stall every step, so data sets check labels
/// when they read them.
void check_labels(const Tensor& labels, std::int64_t classes) {
  if (labels.context().kind() != DeviceKind::cpu) return;
  const auto* values = labels.view().as<std::int32_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i)
    check(0 <= values[i] && values[i] < classes, "cross_entropy: label {} of sample {}, expected 0 to {}",
          values[i], i, classes - 1);
}

}  // namespace

CrossEntropy cross_entropy(const Variable& logits, const Tensor& labels, CrossEntropyOptions options) {
  detail::check_floating("cross_entropy", logits);
  detail::check_rank("cross_entropy", "logits", logits.shape(), 2);
  check(logits.shape()[1] > 0, "cross_entropy: logits {} have no classes", logits.shape().text());
  check(options.smoothing >= 0 && options.smoothing < 1,
        "cross_entropy: smoothing is {}, expected 0 <= smoothing < 1", options.smoothing);
  detail::check_indices("cross_entropy", "labels", labels, logits);
  check_labels(labels, logits.shape()[1]);

  const detail::OpScope scope("cross_entropy", logits);
  const Shape per_sample{logits.shape()[0]};
  const DType computed = is_half(logits.dtype()) ? DType::f32 : logits.dtype();
  const DeviceContext& context = detail::result_context(logits, labels);
  Tensor losses = Tensor::empty(per_sample, computed, context);
  Tensor log_sum_exp = Tensor::empty({per_sample[0], 2}, computed, context);
  Tensor correct = Tensor::empty(per_sample, DType::i32, context);
  Tensor total = Tensor::empty({1}, computed, context);
  Tensor correct_count = Tensor::empty_like(total);
  on(losses.stream(), [&](auto& s) {
    kernels::softmax_cross_entropy_forward(s, logits.value().view(), labels.view(), options, losses.view(),
                                           log_sum_exp.view(), correct.view(), total.view(),
                                           correct_count.view());
  });
  const std::int64_t per_sample_bytes = detail::bytes_of(losses);
  const std::int64_t label_bytes = detail::bytes_of(labels);
  const Cost logits_cost = detail::cost_of(logits, {.flops = 4, .reads = 1});
  OpCost cost{.forward = logits_cost, .backward = logits_cost};
  // The labels, whether each is correct, the losses (written, and read for the sum), and log_sum_exp.
  cost.forward.bytes += 2 * label_bytes + 4 * per_sample_bytes;
  // dlogits, the labels and log_sum_exp.
  cost.backward.bytes += detail::bytes_of(logits) + label_bytes + 2 * per_sample_bytes;
  Variable loss = record(
      "cross_entropy", total, {logits},
      [logits = logits.value(), labels, log_sum_exp, options](const Tensor& dloss,
                                                              std::span<GradSlot> slots) {
        on(dloss.stream(), [&](auto& s) {
          kernels::softmax_cross_entropy_backward(s, dloss.view(), logits.view(), labels.view(),
                                                  log_sum_exp.view(), options, slots[0].claim());
        });
      },
      cost);
  return {loss, losses, correct, correct_count};
}

Variable cross_entropy_sum(const Variable& logits, const Tensor& labels, double smoothing) {
  return cross_entropy(logits, labels, {.smoothing = smoothing}).loss;
}

}  // namespace convoy
