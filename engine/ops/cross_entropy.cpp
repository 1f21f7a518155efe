#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/runtime/named_range.h"
#include "convoy/kernels/softmax_cross_entropy.h"

namespace convoy {
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

  const NamedRange range("cross_entropy");
  wait_ready(logits);
  const Shape per_sample{logits.shape()[0]};
  const DType computed = is_half(logits.dtype()) ? DType::f32 : logits.dtype();
  const DeviceContext& context = detail::result_context(logits, labels);
  Tensor losses = Tensor::empty(per_sample, computed, context);
  Tensor log_sum_exp = Tensor::empty_like(losses);
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
  cost.forward.bytes += 2 * label_bytes + 3 * per_sample_bytes;
  // dlogits, the labels and log_sum_exp.
  cost.backward.bytes += detail::bytes_of(logits) + label_bytes + per_sample_bytes;
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
