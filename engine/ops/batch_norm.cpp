#include "convoy/kernels/batchnorm.h"

#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/engine/ops/norm_conv2d.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {
namespace {

void check_residual(const Variable& residual, const Variable& x, NormActivation activation) {
  check(activation != NormActivation::gelu,
        "batch_norm with a residual: found a GELU, expected a ReLU or no activation");
  detail::check_alike("batch_norm with a residual", x, residual);
  check(residual.shape() == x.shape(), "batch_norm: residual {}, expected the input's shape {}",
        residual.shape().text(), x.shape().text());
}

Tensor empty_result(const Variable& x, const Variable& gamma, const Variable& beta,
                    const Variable& residual) {
  return Tensor::empty(x.shape(), x.dtype(), detail::result_context(x, gamma, beta, residual));
}

ConstView view_of(const Tensor& optional) {
  return optional.defined() ? ConstView(optional.view()) : ConstView();
}
ConstView view_of(const Variable& optional) {
  return optional.defined() ? view_of(optional.value()) : ConstView();
}

/// Returns a tensor for the coefficients [2, C] that a forward function saves next to `mean`.
Tensor empty_coefficients(const Tensor& mean) {
  return Tensor::empty({2, mean.numel()}, mean.dtype(), mean.context());
}
/// Returns the coefficients for the backward function, which needs none with a residual.
Tensor saved_coefficients(const Tensor& coefficients, const Variable& residual) {
  return residual.defined() ? Tensor() : coefficients;
}

/// The destinations of the gradients of the inputs, in the order of the inputs.
struct GradViews {
  GradView x, gamma, beta, residual;

  GradViews(std::span<GradSlot> slots, bool has_activation)
      // The order matters: x may be its own residual, and then the slot claimed first overwrites and the
      // other accumulates. Without an activation the residual's gradient is dy itself, so no kernel writes it.
      : x(slots[0].claim()), gamma(slots[1].claim()), beta(slots[2].claim()) {
    if (has_activation && slots.size() > 3) residual = slots[3].claim();
  }
};

/// Where the statistics of an op come from. Only those of `running` are constants in the backward pass.
enum class Source : std::uint8_t { batch, given, running };

/// Returns the cost of the op. Each direction makes two passes: one for sums per channel, which the forward
/// needs only for statistics of the batch, and one over the data. A residual's gradient is written only after
/// an activation.
OpCost cost_of_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta, bool residual,
                          NormActivation activation, Source source) {
  const bool training = source != Source::running;
  const int r = residual ? 1 : 0, m = activation != NormActivation::none ? 1 : 0;
  OpCost cost;
  // The moments: subtract an origin, sum, square, sum of squares.
  if (source == Source::batch) cost.forward += detail::cost_of(x, {.flops = 4, .reads = 1});
  // Normalization: subtract, multiply, add. In inference: multiply, add.
  cost.forward += detail::cost_of(x, {.flops = (training ? 3 : 2) + r + m, .reads = 1 + r, .writes = 1});
  // Without a residual, a GPU computes the activation's derivative from x. With one, it reads y once, and writes
  // the masked gradient for the residual, which then replaces dy and y. In inference both passes read y.
  const int y1 = m * (training ? r : 1), y2 = training ? 0 : m;
  // The sums of dy and of dy x̂, for the gradients of gamma and beta, and in training for dx.
  if (training || gamma.requires_grad() || beta.requires_grad())
    cost.backward += detail::cost_of(x, {.flops = 5 + m, .reads = 2 + y1, .writes = training ? r * m : 0});
  // dx. In training: x̂ again, a multiplication, two subtractions, the factor. In inference: the factor.
  cost.backward += detail::cost_of(
      x, {.flops = (training ? 6 : 1) + m, .reads = 2 + y2, .writes = 1 + (training ? 0 : r * m)});
  return cost;
}

/// Records the op. `run(stream, dy, y, grads)` calls its backward kernel; y is null without a ReLU.
template <class Run>
Variable record_batch_norm(const Tensor& y, const Variable& x, const Variable& gamma, const Variable& beta,
                           const Variable& residual, NormActivation activation, Source source, Run run,
                           std::vector<OpAttribute> attributes = {}) {
  std::vector<Variable> inputs = {x, gamma, beta};
  if (residual.defined()) inputs.push_back(residual);
  return record(
      "batch_norm", y, std::move(inputs),
      [saved_y = activation == NormActivation::relu ? y : Tensor(),
       has_activation = activation != NormActivation::none,
       run](const Tensor& dy, std::span<GradSlot> slots) {
        const GradViews grads(slots, has_activation);
        on(dy.stream(), [&](auto& s) { run(s, dy.view(), view_of(saved_y), grads); });
        if (!has_activation && slots.size() > 3) slots[3].alias_or_accumulate(dy);
      },
      cost_of_batch_norm(x, gamma, beta, residual.defined(), activation, source), std::move(attributes));
}

/// Records a batch norm in training whose result is y.
Variable record_training(const Tensor& y, const BatchNormInput& in, const Variable& residual,
                         NormActivation activation, Source source) {
  return record_batch_norm(
      y, in.x, in.gamma, in.beta, residual, activation, source,
      [x = in.x.value(), gamma = in.gamma.value(), mean = in.mean, inverse_std = in.inverse_std,
       saved = saved_coefficients(in.coefficients, residual),
       activation](auto& s, ConstView dy, ConstView out, const GradViews& grads) {
        kernels::batch_norm_backward(s, dy, x.view(), out, gamma.view(), mean.view(), inverse_std.view(),
                                     view_of(saved), grads.x, grads.residual, grads.gamma, grads.beta,
                                     {.activation = activation});
      });
}

Variable batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                          const Variable& residual, const BatchNormStatistics& running,
                          BatchNormOptions options) {
  const Tensor y = empty_result(x, gamma, beta, residual);
  const Tensor mean = Tensor::empty(gamma.shape(), gamma.dtype(), y.context());
  const Tensor inverse_std = Tensor::empty_like(mean);
  const Tensor coefficients = empty_coefficients(mean);
  on(y.stream(), [&](auto& s) {
    kernels::batch_norm_forward(s, x.value().view(), gamma.value().view(), beta.value().view(),
                                view_of(residual), y.view(), mean.view(), inverse_std.view(),
                                coefficients.view(), running.running_mean.view(), running.running_var.view(),
                                options);
  });
  return record_training(y, {x, gamma, beta, mean, inverse_std, coefficients}, residual, options.activation,
                         Source::batch);
}

Variable sync_batch_norm_train(const Variable& x, const Variable& gamma, const Variable& beta,
                               const Variable& residual, const BatchNormStatistics& running,
                               const std::shared_ptr<ProcessGroup>& group, BatchNormOptions options) {
  const std::int64_t length = 1 + 2 * gamma.value().numel();  // n, and two numbers per channel
  const Tensor y = empty_result(x, gamma, beta, residual);
  const Tensor mean = Tensor::empty(gamma.shape(), gamma.dtype(), y.context());
  const Tensor inverse_std = Tensor::empty_like(mean);
  const Tensor coefficients = empty_coefficients(mean);
  const Tensor local_moments = Tensor::empty({length}, DType::f64, x.context());
  const Tensor moments = Tensor::empty({group->size(), length}, DType::f64, x.context());
  on(y.stream(), [&](auto& s) { kernels::sync_batch_norm_stats(s, x.value().view(), local_moments.view()); });
  group->all_gather(local_moments, moments);
  on(y.stream(), [&](auto& s) {
    kernels::sync_batch_norm_elemt(s, x.value().view(), gamma.value().view(), beta.value().view(),
                                   view_of(residual), moments.view(), y.view(), mean.view(),
                                   inverse_std.view(), coefficients.view(), running.running_mean.view(),
                                   running.running_var.view(), options);
  });
  return record_batch_norm(
      y, x, gamma, beta, residual, options.activation, Source::batch,
      [x = x.value(), gamma = gamma.value(), mean, inverse_std,
       saved = saved_coefficients(coefficients, residual), group, options,
       length](auto& s, ConstView dy, ConstView out, const GradViews& grads) {
        const Tensor sums = Tensor::empty({length}, DType::f64, x.context());
        kernels::sync_batch_norm_backward_reduce(s, dy, x.view(), out, mean.view(), inverse_std.view(),
                                                 view_of(saved), sums.view(), grads.gamma, grads.beta,
                                                 options);
        group->all_reduce(sums);  // even if x wants no gradient: every rank must make the call
        kernels::sync_batch_norm_backward_elemt(s, dy, x.view(), out, gamma.view(), mean.view(),
                                                inverse_std.view(), view_of(saved), sums.view(), grads.x,
                                                grads.residual, options);
      });
}

Variable batch_norm_infer(const Variable& x, const Variable& gamma, const Variable& beta,
                          const Variable& residual, const BatchNormStatistics& running,
                          BatchNormOptions options) {
  if (options.activation == NormActivation::gelu) {  // no kernel computes the gradient of both
    options.activation = NormActivation::none;
    return gelu(batch_norm_infer(x, gamma, beta, residual, running, options));
  }
  const Tensor y = empty_result(x, gamma, beta, residual);
  on(y.stream(), [&](auto& s) {
    kernels::batch_norm_inference(s, x.value().view(), gamma.value().view(), beta.value().view(),
                                  view_of(residual), running.running_mean.view(), running.running_var.view(),
                                  y.view(), options);
  });
  return record_batch_norm(y, x, gamma, beta, residual, options.activation, Source::running,
                           [x = x.value(), gamma = gamma.value(), running, options](
                               auto& s, ConstView dy, ConstView out, const GradViews& grads) {
                             kernels::batch_norm_inference_backward(
                                 s, dy, x.view(), out, gamma.view(), running.running_mean.view(),
                                 running.running_var.view(), grads.x, grads.residual, grads.gamma, grads.beta,
                                 options);
                           },
                           {{"running_mean", running.running_mean},
                            {"running_var", running.running_var},
                            {"epsilon", options.epsilon},
                            {"relu", options.activation == NormActivation::relu}});
}

/// Checks the arguments of batch_norm() and sync_batch_norm().
void check_arguments(const Variable& x, const Variable& gamma, const Variable& beta, const Variable& residual,
                     const BatchNormStatistics& running, BatchNormOptions options) {
  detail::check_floating("batch_norm", x);
  wait_ready(x, gamma, beta, residual);
  check(x.shape().rank() >= 2, "batch_norm: input {}, expected [N, …, C]", x.shape().text());
  detail::check_batch_norm(x, x.shape()[-1], gamma.value(), beta.value(), running.running_mean,
                           running.running_var);
  if (residual.defined()) check_residual(residual, x, options.activation);
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormStatistics& running, bool training, BatchNormOptions options,
                    const Variable& residual) {
  const NamedRange range("batch_norm");
  check_arguments(x, gamma, beta, residual, running, options);
  if (!training) return batch_norm_infer(x, gamma, beta, residual, running, options);
  detail::check_batch(x.shape());
  return batch_norm_train(x, gamma, beta, residual, running, options);
}

Variable sync_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                         const BatchNormStatistics& running, const std::shared_ptr<ProcessGroup>& group,
                         BatchNormOptions options, const Variable& residual) {
  const NamedRange range("batch_norm");
  check_arguments(x, gamma, beta, residual, running, options);
  // Without data there is nothing to gather.
  if (detail::result_context(x, gamma, beta, residual).kind() == DeviceKind::meta)
    return batch_norm_train(x, gamma, beta, residual, running, options);
  return sync_batch_norm_train(x, gamma, beta, residual, running, group, options);
}

Variable normalize(const BatchNormInput& in, NormActivation activation, const Variable& residual) {
  const NamedRange range("batch_norm");
  wait_ready(in.x, in.gamma, in.beta, residual);
  if (residual.defined()) check_residual(residual, in.x, activation);
  const Tensor y = empty_result(in.x, in.gamma, in.beta, residual);
  on(y.stream(), [&](auto& s) {
    kernels::batch_norm_normalize(s, in.x.value().view(), in.mean.view(), in.coefficients.view(),
                                  view_of(residual), y.view(), activation);
  });
  return record_training(y, in, residual, activation, Source::given);
}

}  // namespace convoy
