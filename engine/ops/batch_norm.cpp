#include "engine/ops/checks.h"
#include "engine/ops/ops.h"
#include "kernels/batchnorm.h"

namespace convoy {
namespace {

Variable train(const Variable& x, const Variable& gamma, const Variable& beta,
               const BatchNormStatistics& running, BatchNormOptions options) {
  Tensor y = Tensor::empty_like(x.value());
  Tensor mean = Tensor::empty_like(gamma.value());
  Tensor inverse_std = Tensor::empty_like(gamma.value());
  on(y.stream(), [&](auto& s) {
    batch_norm_forward(s, x.value().view(), gamma.value().view(), beta.value().view(), y.view(), mean.view(),
                       inverse_std.view(), running.running_mean.view(), running.running_var.view(), options);
  });
  return record(
      "batch_norm", y, {x, gamma, beta},
      [x = x.value(), gamma = gamma.value(), mean, inverse_std](const Tensor& dy, std::span<GradSlot> slots) {
        on(dy.stream(), [&](auto& s) {
          batch_norm_backward(s, dy.view(), x.view(), gamma.view(), mean.view(), inverse_std.view(),
                              slots[0].view(), slots[1].view(), slots[2].view());
        });
      });
}

Variable infer(const Variable& x, const Variable& gamma, const Variable& beta,
               const BatchNormStatistics& running, BatchNormOptions options) {
  Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](auto& s) {
    batch_norm_inference(s, x.value().view(), gamma.value().view(), beta.value().view(),
                         running.running_mean.view(), running.running_var.view(), y.view(), options);
  });
  return record(
      "batch_norm", y, {x, gamma, beta},
      [x = x.value(), gamma = gamma.value(), running, options](const Tensor& dy, std::span<GradSlot> slots) {
        on(dy.stream(), [&](auto& s) {
          batch_norm_inference_backward(s, dy.view(), x.view(), gamma.view(), running.running_mean.view(),
                                        running.running_var.view(), slots[0].view(), slots[1].view(),
                                        slots[2].view(), options);
        });
      });
}

}  // namespace

Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormStatistics& running, bool training, BatchNormOptions options) {
  detail::check_floating("batch_norm", x);
  check(x.shape().rank() >= 2, "batch_norm: input {}, expected [N, …, C]", x.shape().text());
  const std::int64_t channels = x.shape()[-1];
  detail::check_vector("batch_norm", "scale", gamma, x, channels);
  detail::check_vector("batch_norm", "shift", beta, x, channels);
  detail::check_vector("batch_norm", "running mean", Variable(running.running_mean), x, channels);
  detail::check_vector("batch_norm", "running variance", Variable(running.running_var), x, channels);
  if (!training) return infer(x, gamma, beta, running, options);
  check(channels == 0 || x.value().numel() != channels,
        "batch_norm: input {} has one value a channel, whose variance is not defined; train with a larger "
        "batch",
        x.shape().text());
  return train(x, gamma, beta, running, options);
}

}  // namespace convoy
