#include "convoy/engine/ops/detail/bias_gradient.h"
#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/engine/ops/norm_conv2d.h"
#include "convoy/kernels/norm_conv2d.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {

std::int64_t window_output_size(std::int64_t size, std::int64_t kernel, int stride, int padding) {
  check(kernel >= 1 && stride >= 1 && padding >= 0,
        "window with kernel {}, stride {}, padding {}: expected at least 1, 1 and 0", kernel, stride,
        padding);
  const std::int64_t room = size + 2 * std::int64_t{padding} - kernel;
  check(room >= 0, "a window of {} does not fit into {} pixels with padding {}", kernel, size, padding);
  return room / stride + 1;
}

namespace {

/// Checks the input and the filter of a convolution. Returns the shape of the result.
Shape check_conv2d(const Variable& x, const Variable& filter, Conv2dOptions options) {
  detail::check_floating("conv2d", x);
  detail::check_alike("conv2d", x, filter);
  detail::check_rank("conv2d", "input", x.shape(), 4);
  detail::check_rank("conv2d", "filter", filter.shape(), 4);
  check(options.groups >= 1 && filter.shape()[0] % options.groups == 0,
        "conv2d: found {} groups and filter {}, expected a divisor of its {} output channels", options.groups,
        filter.shape().text(), filter.shape()[0]);
  check(x.shape()[3] == filter.shape()[3] * options.groups,
        "conv2d: input {} has {} channels, filter {} expects {}", x.shape().text(), x.shape()[3],
        filter.shape().text(), filter.shape()[3] * options.groups);
  return {x.shape()[0], window_output_size(x.shape()[1], filter.shape()[1], options.stride, options.padding),
          window_output_size(x.shape()[2], filter.shape()[2], options.stride, options.padding),
          filter.shape()[0]};
}

/// Returns the floating-point operations of a convolution with the result y.
std::int64_t flops_of(const Tensor& y, const Variable& filter) {
  return 2 * y.numel() * filter.shape()[1] * filter.shape()[2] * filter.shape()[3];
}

}  // namespace

// y = x * w + b      dx = g transposed-* w      dw = x * g      db = sums of g over all pixels
// with g = dy, or dy [y > 0] if the op ends in a ReLU.
Variable conv2d(const Variable& x, const Variable& filter, const Variable& bias, Conv2dOptions options) {
  const Shape shape = check_conv2d(x, filter, options);
  if (bias.defined()) detail::check_vector("conv2d", "bias", bias, x, filter.shape()[0]);

  const NamedRange range("conv2d");
  wait_ready(x, filter, bias);
  Tensor y = Tensor::empty(shape, x.dtype(), detail::result_context(x, filter, bias));
  on(y.stream(), [&](auto& s) {
    kernels::conv2d_forward(s, x.value().view(), filter.value().view(),
                            bias.defined() ? bias.value().view() : View{}, y.view(), options);
  });
  std::vector<Variable> inputs = {x, filter};
  if (bias.defined()) inputs.push_back(bias);
  const int passes = (options.relu ? 3 : 0) + (bias.requires_grad() ? 1 : 0);
  return record(
      "conv2d", y, std::move(inputs),
      [x = x.value(), w = filter.value(), y = options.relu ? y : Tensor(), options](
          const Tensor& dy, std::span<GradSlot> slots) {
        const Tensor g = detail::before_bias(dy, y, slots.size() > 2 ? slots[2] : GradSlot());
        // Parameters first, so that their all-reduce can start while dx is computed.
        slots[1].claim_on_side_stream([g, x, options](const Stream& stream, const GradView& dw) {
          on(stream, [&](auto& s) { kernels::conv2d_backward_filter(s, g.view(), x.view(), dw, options); });
        });
        if (!slots[0].wanted()) return;
        on(dy.stream(),
           [&](auto& s) { kernels::conv2d_backward_data(s, g.view(), w.view(), slots[0].claim(), options); });
      },
      detail::gemm_cost(flops_of(y, filter), x, filter, y, passes),
      {{"stride", options.stride},
       {"padding", options.padding},
       {"groups", options.groups},
       {"relu", options.relu}});
}

namespace {

/// The batch norm and the ReLU in front of a convolution, in kernels' terms; of tensors, for the backward.
struct SavedNorm {
  Tensor gamma, mean, inverse_std, coefficients;  // undefined: there is no batch norm

  kernels::InputNorm view() const {
    if (!mean.defined()) return {};
    return {gamma.view(), mean.view(), inverse_std.view(), coefficients.view()};
  }
};

/// Returns the cost of conv2d_statistics(), or with `norm` that of norm_conv2d(). Batch norm adds no passes
/// over memory to the forward pass and the gradient of the filter. The gradient of the normalized input is
/// written with a mask, for which x is read. A pass over it and x then computes the gradient of x.
OpCost cost_of(const Variable& x, const Variable& filter, const Tensor& y, bool norm) {
  OpCost cost = detail::gemm_cost(flops_of(y, filter), x, filter, y);
  cost.forward.flops += 4 * y.numel();  // as in batch_norm(): the moments
  if (!norm) return cost;
  constexpr detail::PerElement kNormalize{.flops = 4};
  cost.forward += detail::cost_of(x, kNormalize);
  if (filter.requires_grad()) cost.backward += detail::cost_of(x, kNormalize);
  if (!x.requires_grad()) return cost;
  cost.backward += detail::cost_of(x, {.flops = kNormalize.flops + 6, .reads = 1});
  cost.backward += detail::cost_of(x, {.flops = 6, .reads = 2, .writes = 1});
  return cost;
}

/// Computes both ops: `norm` is null for conv2d_statistics().
BatchNormInput convolve(std::string_view name, const Variable& x, const BatchNormInput* norm,
                        const Variable& filter, const BatchNormParameters& next, Conv2dOptions options) {
  const Shape shape = check_conv2d(x, filter, options);
  check(!options.relu, "{}: found a ReLU before the statistics, expected none", name);
  const NamedRange range(name);
  wait_ready(x, filter, next.gamma, next.beta);
  const Tensor &running_mean = next.running.running_mean, &running_var = next.running.running_var;
  detail::check_batch_norm(x, shape[3], next.gamma.value(), next.beta.value(), running_mean, running_var);
  detail::check_batch(shape);

  std::vector<Variable> inputs = {x, filter};
  SavedNorm saved;
  if (norm != nullptr) {
    wait_ready(norm->gamma, norm->beta);
    inputs.insert(inputs.end(), {norm->gamma, norm->beta});
    saved = {norm->gamma.value(), norm->mean, norm->inverse_std, norm->coefficients};
  }
  const Tensor y = Tensor::empty(shape, x.dtype(), detail::result_context(x, filter, next.gamma, next.beta));
  const Tensor mean = Tensor::empty(next.gamma.shape(), next.gamma.dtype(), y.context());
  const Tensor inverse_std = Tensor::empty_like(mean);
  const Tensor coefficients = Tensor::empty({2, mean.numel()}, mean.dtype(), y.context());
  on(y.stream(), [&](auto& s) {
    kernels::norm_conv2d_forward(
        s, x.value().view(), saved.view(), filter.value().view(), y.view(),
        {next.gamma.value().view(), next.beta.value().view(), mean.view(), inverse_std.view(),
         coefficients.view(), running_mean.view(), running_var.view(), next.options},
        options);
  });
  const Variable result = record(
      name, y, std::move(inputs),
      [x = x.value(), w = filter.value(), saved, options](const Tensor& dy, std::span<GradSlot> slots) {
        // Parameters first, as in conv2d().
        slots[1].claim_on_side_stream([dy, x, saved, options](const Stream& stream, const GradView& dw) {
          on(stream, [&](auto& s) {
            kernels::norm_conv2d_backward_filter(s, dy.view(), x.view(), saved.view(), dw, options);
          });
        });
        on(dy.stream(), [&](auto& s) {
          const bool wants_norm = slots.size() > 2 && (slots[2].wanted() || slots[3].wanted());
          if (!slots[0].wanted() && !wants_norm) return;
          const GradView dx = slots[0].claim();
          if (slots.size() > 2)
            kernels::norm_conv2d_backward_norm(s, dy.view(), w.view(), x.view(), saved.view(), dx,
                                               slots[2].claim(), slots[3].claim(), options);
          else
            kernels::conv2d_backward_data(s, dy.view(), w.view(), dx, options);
        });
      },
      cost_of(x, filter, y, norm != nullptr));
  return {result, next.gamma, next.beta, mean, inverse_std, coefficients};
}

}  // namespace

BatchNormInput conv2d_statistics(const Variable& x, const Variable& filter, const BatchNormParameters& next,
                                 Conv2dOptions options) {
  return convolve("conv2d_statistics", x, nullptr, filter, next, options);
}

BatchNormInput norm_conv2d(const BatchNormInput& input, const Variable& filter,
                           const BatchNormParameters& next, Conv2dOptions options) {
  return convolve("norm_conv2d", input.x, &input, filter, next, options);
}

}  // namespace convoy
