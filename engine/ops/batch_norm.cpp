#include "convoy/kernels/batchnorm.h"

#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/engine/ops/ops.h"

namespace convoy {
namespace {

/// Checks that `values` is [channels] on a device like that of x, in the type that x is computed in.
void check_parameter(std::string_view what, const Tensor& values, const Variable& x, std::int64_t channels) {
  const DType expected = is_half(x.dtype()) ? DType::f32 : x.dtype();
  check(values.dtype() == expected, "batch_norm: {} is {}, expected {} for an input of {}", what,
        to_string(values.dtype()), to_string(expected), to_string(x.dtype()));
  check(detail::can_combine(values.device(), x.device()), "batch_norm: {} is on {}, expected {} as the input",
        what, values.context().name(), x.context().name());
  check(values.shape() == Shape{channels}, "batch_norm: {} {}, expected [{}]", what, values.shape().text(),
        channels);
}

void check_residual(const Variable& residual, const Variable& x) {
  detail::check_alike("batch_norm with a residual", x, residual);
  check(residual.shape() == x.shape(), "batch_norm: residual {}, expected the input's shape {}",
        residual.shape().text(), x.shape().text());
}

Tensor empty_result(const Variable& x, const Variable& gamma, const Variable& beta,
                    const Variable& residual) {
  return Tensor::empty(x.shape(), x.dtype(), detail::result_context(x, gamma, beta, residual));
}

ConstView view_of(const Variable& optional) {
  return optional.defined() ? ConstView(optional.value().view()) : ConstView();
}

/// The destinations of the gradients of the inputs, in the order of the inputs.
struct GradViews {
  GradView x, gamma, beta, residual;

  GradViews(std::span<GradSlot> slots, bool relu)
      // The order matters: x may be its own residual, and then the slot claimed first overwrites and the
      // other accumulates. Without a ReLU the residual's gradient is dy itself, so no kernel writes it.
      : x(slots[0].claim()), gamma(slots[1].claim()), beta(slots[2].claim()) {
    if (relu && slots.size() > 3) residual = slots[3].claim();
  }
};

/// Returns the cost of the op. Each direction makes two passes: one for sums per channel, which inference
/// does not need in the forward, and one over the data. A residual's gradient is written only after a ReLU.
OpCost cost_of_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta, bool residual,
                          bool relu, bool training) {
  const int r = residual ? 1 : 0, m = relu ? 1 : 0;
  OpCost cost;
  // The moments: subtract an origin, sum, square, sum of squares.
  if (training) cost.forward += detail::cost_of(x, {.flops = 4, .reads = 1});
  // Normalization: subtract, multiply, add. In inference: multiply, add.
  cost.forward += detail::cost_of(x, {.flops = (training ? 3 : 2) + r + m, .reads = 1 + r, .writes = 1});
  // The sums of dy and of dy x̂, for the gradients of gamma and beta, and in training for dx.
  if (training || gamma.requires_grad() || beta.requires_grad())
    cost.backward += detail::cost_of(x, {.flops = 5 + m, .reads = 2 + m});
  // dx. In training: x̂ again, a multiplication, two subtractions, the factor. In inference: the factor.
  cost.backward += detail::cost_of(x, {.flops = (training ? 6 : 1) + m, .reads = 2 + m, .writes = 1 + r * m});
  return cost;
}

/// Records the op. `run(stream, dy, y, grads)` calls its backward kernel; y is null without a ReLU.
template <class Run>
Variable record_batch_norm(const Tensor& y, const Variable& x, const Variable& gamma, const Variable& beta,
                           const Variable& residual, bool relu, bool training, Run run) {
  std::vector<Variable> inputs = {x, gamma, beta};
  if (residual.defined()) inputs.push_back(residual);
  return record(
      "batch_norm", y, std::move(inputs),
      [saved_y = relu ? y : Tensor(), relu, run](const Tensor& dy, std::span<GradSlot> slots) {
        const GradViews grads(slots, relu);
        on(dy.stream(),
           [&](auto& s) { run(s, dy.view(), relu ? ConstView(saved_y.view()) : ConstView(), grads); });
        if (!relu && slots.size() > 3) slots[3].alias_or_accumulate(dy);
      },
      cost_of_batch_norm(x, gamma, beta, residual.defined(), relu, training));
}

Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          const Variable& residual, const BatchNormStatistics& running,
                          BatchNormOptions options) {
  const Tensor y = empty_result(x, gamma, beta, residual);
  const Tensor mean = Tensor::empty(gamma.shape(), gamma.dtype(), y.context());
  const Tensor inverse_std = Tensor::empty_like(mean);
  on(y.stream(), [&](auto& s) {
    kernels::batch_norm_forward(s, x.value().view(), gamma.value().view(), beta.value().view(),
                                view_of(residual), y.view(), mean.view(), inverse_std.view(),
                                running.running_mean.view(), running.running_var.view(), options);
  });
  return record_batch_norm(y, x, gamma, beta, residual, options.relu, /*training=*/true,
                           [x = x.value(), gamma = gamma.value(), mean, inverse_std, options](
                               auto& s, ConstView dy, ConstView out, const GradViews& grads) {
                             kernels::batch_norm_backward(s, dy, x.view(), out, gamma.view(), mean.view(),
                                                          inverse_std.view(), grads.x, grads.residual,
                                                          grads.gamma, grads.beta, options);
                           });
}

Variable sync_batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                               const Variable& residual, const BatchNormStatistics& running,
                               const std::shared_ptr<ProcessGroup>& group, BatchNormOptions options) {
  const std::int64_t length = 1 + 2 * gamma.value().numel();  // n, and two numbers per channel
  const Tensor y = empty_result(x, gamma, beta, residual);
  const Tensor mean = Tensor::empty(gamma.shape(), gamma.dtype(), y.context());
  const Tensor inverse_std = Tensor::empty_like(mean);
  const Tensor local_moments = Tensor::empty({length}, DType::f64, x.context());
  const Tensor moments = Tensor::empty({group->size(), length}, DType::f64, x.context());
  on(y.stream(), [&](auto& s) { kernels::sync_batch_norm_stats(s, x.value().view(), local_moments.view()); });
  group->all_gather(local_moments, moments);
  on(y.stream(), [&](auto& s) {
    kernels::sync_batch_norm_elemt(s, x.value().view(), gamma.value().view(), beta.value().view(),
                                   view_of(residual), moments.view(), y.view(), mean.view(),
                                   inverse_std.view(), running.running_mean.view(),
                                   running.running_var.view(), options);
  });
  return record_batch_norm(
      y, x, gamma, beta, residual, options.relu, /*training=*/true,
      [x = x.value(), gamma = gamma.value(), mean, inverse_std, group, options, length](
          auto& s, ConstView dy, ConstView out, const GradViews& grads) {
        const Tensor sums = Tensor::empty({length}, DType::f64, x.context());
        kernels::sync_batch_norm_backward_reduce(s, dy, x.view(), out, mean.view(), inverse_std.view(),
                                                 sums.view(), grads.gamma, grads.beta, options);
        group->all_reduce(sums);  // even if x wants no gradient: every rank must make the call
        kernels::sync_batch_norm_backward_elemt(s, dy, x.view(), out, gamma.view(), mean.view(),
                                                inverse_std.view(), sums.view(), grads.x, grads.residual,
                                                options);
      });
}

Variable batch_norm_infer(const Variable& x, const Variable& gamma, const Variable& beta,
                          const Variable& residual, const BatchNormStatistics& running,
                          BatchNormOptions options) {
  const Tensor y = empty_result(x, gamma, beta, residual);
  on(y.stream(), [&](auto& s) {
    kernels::batch_norm_inference(s, x.value().view(), gamma.value().view(), beta.value().view(),
                                  view_of(residual), running.running_mean.view(), running.running_var.view(),
                                  y.view(), options);
  });
  return record_batch_norm(y, x, gamma, beta, residual, options.relu, /*training=*/false,
                           [x = x.value(), gamma = gamma.value(), running, options](
                               auto& s, ConstView dy, ConstView out, const GradViews& grads) {
                             kernels::batch_norm_inference_backward(
                                 s, dy, x.view(), out, gamma.view(), running.running_mean.view(),
                                 running.running_var.view(), grads.x, grads.residual, grads.gamma, grads.beta,
                                 options);
                           });
}

/// Checks the arguments of both ops. Returns the number of channels.
std::int64_t check_arguments(const Variable& x, const Variable& gamma, const Variable& beta,
                             const Variable& residual, const BatchNormStatistics& running) {
  detail::check_floating("batch_norm", x);
  wait_ready(x, gamma, beta, residual);
  check(x.shape().rank() >= 2, "batch_norm: input {}, expected [N, …, C]", x.shape().text());
  const std::int64_t channels = x.shape()[-1];
  check_parameter("scale", gamma.value(), x, channels);
  check_parameter("shift", beta.value(), x, channels);
  check_parameter("running mean", running.running_mean, x, channels);
  check_parameter("running variance", running.running_var, x, channels);
  if (residual.defined()) check_residual(residual, x);
  return channels;
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormStatistics& running, bool training, BatchNormOptions options,
                    const Variable& residual) {
  const std::int64_t channels = check_arguments(x, gamma, beta, residual, running);
  if (!training) return batch_norm_infer(x, gamma, beta, residual, running, options);
  check(channels == 0 || x.value().numel() != channels,
        "batch_norm: input {} has one value per channel, expected more; train with a larger batch",
        x.shape().text());
  return batch_norm_train(x, gamma, beta, residual, running, options);
}

Variable sync_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                         const BatchNormStatistics& running, const std::shared_ptr<ProcessGroup>& group,
                         BatchNormOptions options, const Variable& residual) {
  check_arguments(x, gamma, beta, residual, running);
  // Without data there is nothing to gather.
  if (detail::result_context(x, gamma, beta, residual).kind() == DeviceKind::meta)
    return batch_norm_train(x, gamma, beta, residual, running, options);
  return sync_batch_norm_train(x, gamma, beta, residual, running, group, options);
}

}  // namespace convoy
