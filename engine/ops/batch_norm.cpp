#include "kernels/batchnorm.h"

#include "engine/ops/checks.h"
#include "engine/ops/ops.h"

namespace convoy {
namespace {

/// [channels], in the type that x is computed in.
void check_parameter(std::string_view what, const Tensor& values, const Variable& x, std::int64_t channels) {
  const bool is_half = x.dtype() == DType::f16 || x.dtype() == DType::bf16;
  const DType expected = is_half ? DType::f32 : x.dtype();
  check(values.dtype() == expected, "batch_norm: {} {}, expected {} with an input {}", what,
        name_of(values.dtype()), name_of(expected), name_of(x.dtype()));
  check(values.device() == x.device(), "batch_norm: {} is on {}, the input on {}", what,
        values.device().name(), x.device().name());
  check(values.shape() == Shape{channels}, "batch_norm: {} {}, expected [{}]", what, values.shape().text(),
        channels);
}

void check_residual(const Variable& residual, const Variable& x) {
  detail::check_alike("batch_norm with a residual", x, residual);
  check(residual.shape() == x.shape(), "batch_norm: residual {}, expected {} as the input",
        residual.shape().text(), x.shape().text());
}

ConstView view_of(const Variable& optional) {
  return optional.defined() ? ConstView(optional.value().view()) : ConstView();
}

/// Where backward puts the gradients of the inputs, which are in this order.
struct Slots {
  GradView x, gamma, beta, residual;

  Slots(std::span<GradSlot> slots, bool relu)
      // One by one: x may be its own residual, and then the slot that is asked first writes and the other
      // adds. Without a ReLU the residual's gradient is dy itself, and no kernel has to write it.
      : x(slots[0].view()), gamma(slots[1].view()), beta(slots[2].view()) {
    if (relu && slots.size() > 3) residual = slots[3].view();
  }
};

/// Records the op; `run(stream, dy, y, slots)` calls its backward kernel, y null where no ReLU wants it.
template <class Run>
Variable record_batch_norm(const Tensor& y, const Variable& x, const Variable& gamma, const Variable& beta,
                           const Variable& residual, bool relu, Run run) {
  std::vector<Variable> inputs = {x, gamma, beta};
  if (residual.defined()) inputs.push_back(residual);
  return record("batch_norm", y, std::move(inputs),
                [saved_y = relu ? y : Tensor(), relu, run](const Tensor& dy, std::span<GradSlot> slots) {
                  const Slots to(slots, relu);
                  on(dy.stream(),
                     [&](auto& s) { run(s, dy.view(), relu ? ConstView(saved_y.view()) : ConstView(), to); });
                  if (!relu && slots.size() > 3) slots[3].take(dy);
                });
}

Variable train(const Variable& x, const Variable& gamma, const Variable& beta, const Variable& residual,
               const BatchNormStatistics& running, BatchNormOptions options) {
  Tensor y = Tensor::empty_like(x.value());
  Tensor mean = Tensor::empty_like(gamma.value());
  Tensor inverse_std = Tensor::empty_like(gamma.value());
  on(y.stream(), [&](auto& s) {
    batch_norm_forward(s, x.value().view(), gamma.value().view(), beta.value().view(), view_of(residual),
                       y.view(), mean.view(), inverse_std.view(), running.running_mean.view(),
                       running.running_var.view(), options);
  });
  return record_batch_norm(y, x, gamma, beta, residual, options.relu,
                           [x = x.value(), gamma = gamma.value(), mean, inverse_std, options](
                               auto& s, ConstView dy, ConstView out, const Slots& to) {
                             batch_norm_backward(s, dy, x.view(), out, gamma.view(), mean.view(),
                                                 inverse_std.view(), to.x, to.residual, to.gamma, to.beta,
                                                 options);
                           });
}

Variable train_part(const Variable& x, const Variable& gamma, const Variable& beta, const Variable& residual,
                    const BatchNormStatistics& running, const std::shared_ptr<PartExchange>& exchange,
                    BatchNormOptions options) {
  const std::int64_t numbers = 1 + 2 * gamma.value().numel();
  Tensor y = Tensor::empty_like(x.value());
  Tensor mean = Tensor::empty_like(gamma.value());
  Tensor inverse_std = Tensor::empty_like(gamma.value());
  const Tensor mine = Tensor::empty({numbers}, DType::f64, x.device());
  const Tensor all = Tensor::empty({exchange->parts(), numbers}, DType::f64, x.device());
  on(y.stream(), [&](auto& s) { batch_norm_moments(s, x.value().view(), mine.view()); });
  exchange->all_gather(mine, all);
  on(y.stream(), [&](auto& s) {
    batch_norm_forward_of_part(s, x.value().view(), gamma.value().view(), beta.value().view(),
                               view_of(residual), all.view(), y.view(), mean.view(), inverse_std.view(),
                               running.running_mean.view(), running.running_var.view(), options);
  });
  return record_batch_norm(
      y, x, gamma, beta, residual, options.relu,
      [x = x.value(), gamma = gamma.value(), mean, inverse_std, exchange, options, numbers](
          auto& s, ConstView dy, ConstView out, const Slots& to) {
        const Tensor sums = Tensor::empty({numbers}, DType::f64, x.device());
        batch_norm_gradient_sums(s, dy, x.view(), out, mean.view(), inverse_std.view(), sums.view(), to.gamma,
                                 to.beta, options);
        exchange->all_reduce(sums);  // also where no gradient of x is wanted: others may want theirs
        batch_norm_backward_of_part(s, dy, x.view(), out, gamma.view(), mean.view(), inverse_std.view(),
                                    sums.view(), to.x, to.residual, options);
      });
}

Variable infer(const Variable& x, const Variable& gamma, const Variable& beta, const Variable& residual,
               const BatchNormStatistics& running, BatchNormOptions options) {
  Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](auto& s) {
    batch_norm_inference(s, x.value().view(), gamma.value().view(), beta.value().view(), view_of(residual),
                         running.running_mean.view(), running.running_var.view(), y.view(), options);
  });
  return record_batch_norm(y, x, gamma, beta, residual, options.relu,
                           [x = x.value(), gamma = gamma.value(), running, options](
                               auto& s, ConstView dy, ConstView out, const Slots& to) {
                             batch_norm_inference_backward(
                                 s, dy, x.view(), out, gamma.view(), running.running_mean.view(),
                                 running.running_var.view(), to.x, to.residual, to.gamma, to.beta, options);
                           });
}

/// Returns the channels.
std::int64_t check_arguments(const Variable& x, const Variable& gamma, const Variable& beta,
                             const Variable& residual, const BatchNormStatistics& running) {
  detail::check_floating("batch_norm", x);
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
  if (!training) return infer(x, gamma, beta, residual, running, options);
  check(channels == 0 || x.value().numel() != channels,
        "batch_norm: input {} has one value a channel, whose variance is not defined; train with a larger "
        "batch",
        x.shape().text());
  return train(x, gamma, beta, residual, running, options);
}

Variable sync_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                         const BatchNormStatistics& running, const std::shared_ptr<PartExchange>& exchange,
                         BatchNormOptions options, const Variable& residual) {
  check_arguments(x, gamma, beta, residual, running);
  return train_part(x, gamma, beta, residual, running, exchange, options);
}

}  // namespace convoy
