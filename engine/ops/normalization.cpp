#include "convoy/engine/ops/normalization.h"

#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/kernels/normalization.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {
namespace {

/// Checks a weight or bias, which may be undefined.
void check_parameter(std::string_view op, std::string_view what, const Variable& values, const Variable& x,
                     const Shape& expected) {
  if (!values.defined()) return;
  const DType type = is_half(x.dtype()) ? DType::f32 : x.dtype();
  check(values.dtype() == type, "{}: {} is {}, expected {} for an input of {}", op, what,
        to_string(values.dtype()), to_string(type), to_string(x.dtype()));
  check(detail::can_combine(values.device(), x.device()), "{}: {} is on {}, expected {} as the input", op,
        what, values.context().name(), x.context().name());
  check(values.shape() == expected, "{}: {} {}, expected {}", op, what, values.shape().text(),
        expected.text());
}

ConstView view_if_any(const Tensor& optional) { return optional.defined() ? optional.view() : ConstView(); }
Tensor value_of(const Variable& optional) { return optional.defined() ? optional.value() : Tensor(); }

/// Normalizes x, viewed as [samples, pixels, channels], in groups of adjacent channels.
Variable normalize(std::string_view name, const Variable& x, const Shape& sizes, std::int64_t groups,
                   const Variable& weight, const Variable& bias, double epsilon) {
  const NamedRange range(name);
  wait_ready(x, weight, bias);
  const Tensor y = Tensor::empty(x.shape(), x.dtype(), detail::result_context(x, weight, bias));
  const DType computed = is_half(x.dtype()) ? DType::f32 : x.dtype();
  const Tensor mean = Tensor::empty({sizes[0], groups}, computed, y.context());
  const Tensor inverse_std = Tensor::empty_like(mean);
  on(y.stream(), [&](auto& s) {
    kernels::group_norm_forward(s, x.value().reshape(sizes).view(), view_if_any(value_of(weight)),
                                view_if_any(value_of(bias)), epsilon, y.reshape(sizes).view(), mean.view(),
                                inverse_std.view());
  });

  std::vector<Variable> inputs = {x};
  if (weight.defined()) inputs.push_back(weight);
  if (bias.defined()) inputs.push_back(bias);
  // The mean, the squared distances from it, then subtract, scale, multiply, add. The caches serve the later
  // passes over a group. dx: two sums and five operations. The parameters' gradients: four operations.
  OpCost cost{.forward = detail::cost_of(x, {.flops = 8, .reads = 1, .writes = 1})};
  if (x.requires_grad()) cost.backward += detail::cost_of(x, {.flops = 11, .reads = 2, .writes = 1});
  const bool parameters =
      (weight.defined() && weight.requires_grad()) || (bias.defined() && bias.requires_grad());
  if (parameters) cost.backward += detail::cost_of(x, {.flops = 5, .reads = 2});
  return record(
      name, y, std::move(inputs),
      [x = x.value(), weight = value_of(weight), has_bias = bias.defined(), mean, inverse_std, sizes](
          const Tensor& dy, std::span<GradSlot> slots) {
        const bool has_weight = weight.defined();
        const GradView dx = slots[0].claim();
        const GradView dweight = has_weight ? slots[1].claim() : GradView();
        const GradView dbias = has_bias ? slots[has_weight ? 2 : 1].claim() : GradView();
        on(dy.stream(), [&](auto& s) {
          kernels::group_norm_backward(s, dy.reshape(sizes).view(), x.reshape(sizes).view(),
                                       view_if_any(weight), mean.view(), inverse_std.view(), dx, dweight,
                                       dbias);
        });
      },
      cost);
}

}  // namespace

Variable layer_norm(const Variable& x, const Shape& normalized, const Variable& weight, const Variable& bias,
                    double epsilon) {
  detail::check_floating("layer_norm", x);
  const int leading = x.shape().rank() - normalized.rank();
  bool matches = normalized.rank() > 0 && normalized.numel() > 0 && leading >= 0;
  for (int axis = 0; matches && axis < normalized.rank(); ++axis)
    matches = x.shape()[leading + axis] == normalized[axis];
  check(matches, "layer_norm: input {}, expected a shape that ends with {}", x.shape().text(),
        normalized.text());
  check_parameter("layer_norm", "weight", weight, x, normalized);
  check_parameter("layer_norm", "bias", bias, x, normalized);
  const std::int64_t elements = normalized.numel();
  return normalize("layer_norm", x, {x.shape().numel() / elements, 1, elements}, 1, weight, bias, epsilon);
}

Variable group_norm(const Variable& x, int groups, const Variable& weight, const Variable& bias,
                    double epsilon) {
  detail::check_floating("group_norm", x);
  check(x.shape().rank() >= 2, "group_norm: input {}, expected [N, …, C]", x.shape().text());
  const std::int64_t channels = x.shape()[-1];
  check(groups > 0 && channels > 0 && channels % groups == 0,
        "group_norm: {} groups of the channels of {}, expected a divisor of {}", groups, x.shape().text(),
        channels);
  check_parameter("group_norm", "weight", weight, x, {channels});
  check_parameter("group_norm", "bias", bias, x, {channels});
  std::int64_t pixels = 1;
  for (int axis = 1; axis < x.shape().rank() - 1; ++axis) pixels *= x.shape()[axis];
  return normalize("group_norm", x, {x.shape()[0], pixels, channels}, groups, weight, bias, epsilon);
}

}  // namespace convoy
