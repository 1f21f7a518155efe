#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/softmax.h"

namespace convoy {
namespace {

using kernels::BinaryGradient, kernels::BinaryOp;

/// Returns the losses y of `name` as `reduction` says.
Variable reduced(std::string_view name, const Variable& y, Reduction reduction) {
  check(reduction != Reduction::mean || y.shape().numel() > 0,
        "{}: input {} has no elements, expected some for a mean", name, y.shape().text());
  return reduction == Reduction::none ? y : reduction == Reduction::sum ? sum(y) : mean(y);
}

/// Returns a loss of each element of x, which has the shape of the target, as `reduction` says.
Variable element_loss(std::string_view name, BinaryOp op, BinaryGradient by_x, BinaryGradient by_target,
                      const Variable& x, const Variable& target, Reduction reduction) {
  detail::check_same_shape(name, x, target);
  return reduced(name, detail::binary_op(name, op, by_x, by_target, x, target), reduction);
}

/// Returns factor huber_loss().
Variable huber(std::string_view name, const Variable& x, const Variable& target, Reduction reduction,
               double delta, double factor) {
  detail::check_same_shape(name, x, target);
  check(delta > 0, "{}: the width is {}, expected a positive number", name, delta);
  const Variable d = x - target, inner = clamp(d, -delta, delta);  // inner is the derivative
  return reduced(name, inner * (d - 0.5 * inner) * factor, reduction);
}

}  // namespace

Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction) {
  return element_loss("mse_loss", BinaryOp::squared_error, BinaryGradient::squared_error,
                      BinaryGradient::squared_error, x, target, reduction);
}

Variable binary_cross_entropy_with_logits(const Variable& logits, const Variable& target,
                                          Reduction reduction) {
  return element_loss("binary_cross_entropy_with_logits", BinaryOp::binary_cross_entropy_with_logits,
                      BinaryGradient::logits, BinaryGradient::negative, logits, target, reduction);
}

Variable l1_loss(const Variable& x, const Variable& target, Reduction reduction) {
  detail::check_same_shape("l1_loss", x, target);
  return reduced("l1_loss", abs(x - target), reduction);
}

Variable huber_loss(const Variable& x, const Variable& target, Reduction reduction, double delta) {
  return huber("huber_loss", x, target, reduction, delta, 1);
}

Variable smooth_l1_loss(const Variable& x, const Variable& target, Reduction reduction, double beta) {
  if (beta == 0) return l1_loss(x, target, reduction);
  return huber("smooth_l1_loss", x, target, reduction, beta, 1 / beta);
}

Variable kl_divergence(const Variable& log_p, const Variable& q, Reduction reduction) {
  return element_loss("kl_divergence", BinaryOp::kl_divergence, BinaryGradient::negative,
                      BinaryGradient::target_of_kl, log_p, q, reduction);
}

namespace {

/// Checks labels i32 [...] on the CPU only. On a GPU the check would stall every step, so data sets check
/// labels when they read them.
void check_labels(std::string_view name, const Tensor& labels, std::int64_t classes, std::int32_t ignored) {
  if (labels.context().kind() != DeviceKind::cpu) return;
  const auto* values = labels.view().as<std::int32_t>();
  for (std::int64_t i = 0; i < labels.numel(); ++i)
    check((0 <= values[i] && values[i] < classes) || values[i] == ignored,
          "{}: label {} of sample {}, expected 0 to {}", name, values[i], i, classes - 1);
}

/// The loss `name`: cross_entropy(), or nll_loss() of log-probabilities.
CrossEntropy loss_of_classes(std::string_view name, const Variable& logits, const Tensor& target,
                             const CrossEntropyOptions& options, bool of_log_p) {
  detail::check_floating(name, logits);
  const Shape& shape = logits.shape();
  check(shape.rank() >= 2, "{}: logits {} have {} dimensions, expected at least 2", name, shape.text(),
        shape.rank());
  const std::int64_t classes = shape[-1];
  check(classes > 0, "{}: logits {} have no classes", name, shape.text());
  check(options.smoothing >= 0 && options.smoothing < 1, "{}: smoothing is {}, expected 0 <= smoothing < 1",
        name, options.smoothing);
  check(options.scale == 1 || options.reduction == Reduction::sum,
        "{}: scale is {}, expected 1 unless the reduction is a sum", name, options.scale);
  const DType computed = is_half(logits.dtype()) ? DType::f32 : logits.dtype();
  const Shape rows(shape.sizes().first(static_cast<std::size_t>(shape.rank() - 1)));
  const bool has_labels = target.defined() && target.dtype() == DType::i32;
  if (has_labels || !target.defined() || !is_floating(target.dtype())) {
    detail::check_array(name, "labels", target, DType::i32, rows, logits);
    check_labels(name, target, classes, options.ignore_index);
  } else {
    detail::check_array(name, "class probabilities", target, computed, shape, logits);
  }
  const Tensor& weights = options.class_weights;
  if (weights.defined()) detail::check_array(name, "class weights", weights, computed, {classes}, logits);
  check(options.reduction != Reduction::mean || rows.numel() > 0,
        "{}: logits {} have no rows, expected some for a mean", name, shape.text());

  const detail::OpScope scope(name, logits);
  const DeviceContext& context = detail::result_context(logits, target, weights);
  Tensor losses = Tensor::empty(rows, computed, context);
  Tensor log_sum_exp = Tensor::empty({rows.numel(), 2}, computed, context);
  Tensor correct = Tensor::empty(rows, DType::i32, context);
  Tensor total = Tensor::empty({1}, computed, context);
  Tensor correct_count = Tensor::empty_like(total);
  // The mean of labels is over the sum of their weights, that of probabilities over the number of rows.
  const bool has_row_weights = has_labels && (options.reduction == Reduction::mean || weights.defined());
  const Tensor row_weights = has_row_weights ? Tensor::empty_like(losses) : Tensor();
  const double factor = options.reduction == Reduction::mean && !has_labels
                            ? 1 / static_cast<double>(rows.numel())
                            : options.scale;
  // The target as the kernels take it, of the logits as a matrix.
  const auto kernel_target = [target, weights, smoothing = options.smoothing, ignored = options.ignore_index,
                              factor, of_log_p] {
    return kernels::CrossEntropyTarget{.of_rows = target.view(),
                                       .smoothing = smoothing,
                                       .scale = factor,
                                       .class_weights = weights.defined() ? weights.view() : View(),
                                       .ignore_index = ignored,
                                       .of_log_p = of_log_p};
  };
  const Tensor matrix = logits.value().reshape({rows.numel(), classes});
  Tensor weight = has_row_weights ? Tensor::empty_like(total) : Tensor();
  on(losses.stream(), [&](auto& s) {
    kernels::softmax_cross_entropy_forward(
        s, matrix.view(), kernel_target(), losses.view(), log_sum_exp.view(), correct.view(), total.view(),
        correct_count.view(), has_row_weights ? row_weights.view() : View());
    if (has_row_weights) kernels::sum(s, row_weights.view(), GradView(weight.view()));
  });
  const std::int64_t per_sample_bytes = detail::bytes_of(losses);
  const std::int64_t target_bytes = detail::bytes_of(target);
  const Cost logits_cost = detail::cost_of(logits, {.flops = 4, .reads = 1});
  OpCost cost{.forward = logits_cost, .backward = logits_cost};
  // The target, whether each is correct, the losses (written, and read for the sum), and log_sum_exp.
  cost.forward.bytes += target_bytes + detail::bytes_of(correct) + 4 * per_sample_bytes;
  // dlogits, the target and log_sum_exp.
  cost.backward.bytes += detail::bytes_of(logits) + target_bytes + 2 * per_sample_bytes;
  Variable loss = record(
      name, options.reduction == Reduction::none ? losses : total, {logits},
      [matrix, log_sum_exp, kernel_target](const Tensor& dloss, std::span<GradSlot> slots) {
        GradView dlogits = slots[0].claim();
        on(dloss.stream(), [&](auto& s) {
          kernels::softmax_cross_entropy_backward(s, dloss.view(), matrix.view(), kernel_target(),
                                                  log_sum_exp.view(), dlogits);
        });
      },
      cost);
  if (options.reduction == Reduction::mean && has_labels) loss = loss / Variable(weight);
  return {loss, losses, correct, correct_count, weight};
}

}  // namespace

CrossEntropy cross_entropy(const Variable& logits, const Tensor& target, const CrossEntropyOptions& options) {
  return loss_of_classes("cross_entropy", logits, target, options, false);
}

Variable nll_loss(const Variable& log_p, const Tensor& target, const CrossEntropyOptions& options) {
  return loss_of_classes("nll_loss", log_p, target, options, true).loss;
}

Variable cross_entropy_sum(const Variable& logits, const Tensor& labels, double smoothing) {
  return cross_entropy(logits, labels, {.smoothing = smoothing}).loss;
}

}  // namespace convoy
