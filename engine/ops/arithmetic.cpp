#include "convoy/engine/ops/arithmetic.h"

#include "convoy/engine/ops/detail/broadcast.h"
#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/kernels/broadcast.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {
namespace {

using kernels::BinaryGradient, kernels::BinaryOp;

/// Returns the cost of a pass that reads two operands and writes z, and of one more such pass per gradient if
/// gradients are computed at all.
OpCost cost_of_binary(const Variable& x, const Variable& y, const Tensor& z, bool computes_gradients) {
  const auto flops = z.numel();
  OpCost cost{
      .forward = {.flops = flops, .bytes = detail::bytes_of(x) + detail::bytes_of(y) + detail::bytes_of(z)}};
  for (const Variable& operand : {x, y})
    if (computes_gradients && operand.requires_grad()) cost.backward += cost.forward;
  return cost;
}

/// Computes z = x op y. `backward(dz, slots)` contributes the gradients.
template <class Backward>
Variable binary(std::string_view name, BinaryOp op, const Variable& x, const Variable& y,
                bool computes_gradients, Backward backward) {
  detail::check_floating(name, x);
  detail::check_alike(name, x, y);
  const Shape shape = detail::broadcast_shape(name, x.shape(), y.shape());
  const NamedRange range(name);
  wait_ready(x, y);
  Tensor z = Tensor::empty(shape, x.dtype(), detail::result_context(x, y));
  on(z.stream(),
     [&](auto& s) { kernels::binary(s, op, x.value().view(), y.value().view(), GradView(z.view())); });
  return record(name, z, {x, y}, std::move(backward), cost_of_binary(x, y, z, computes_gradients));
}

/// Returns a gradient for contribute_computed(): dz op operand.
auto combine(BinaryOp op, const Tensor& dz, const Tensor& operand) {
  return [op, dz, operand](auto& s, GradView to) { kernels::binary(s, op, dz.view(), operand.view(), to); };
}

auto gradient_by(BinaryGradient gradient, const Tensor& dz, const Tensor& x, const Tensor& y) {
  return
      [=](auto& s, GradView to) { kernels::binary_backward(s, gradient, dz.view(), x.view(), y.view(), to); };
}

/// maximum and minimum, whose gradient goes to the operand that is `greater` or less.
Variable extremum(std::string_view name, BinaryOp op, BinaryGradient gradient, const Variable& x,
                  const Variable& y) {
  return binary(name, op, x, y, true,
                [gradient, x = x.value(), y = y.value()](const Tensor& dz, std::span<GradSlot> slots) {
                  detail::contribute_computed(dz, x.shape(), slots[0], gradient_by(gradient, dz, x, y));
                  detail::contribute_computed(dz, y.shape(), slots[1], gradient_by(gradient, dz, y, x));
                });
}

}  // namespace

Variable add(const Variable& x, const Variable& y) {
  return binary("add", BinaryOp::add, x, y, false,
                [x = x.shape(), y = y.shape()](const Tensor& dz, std::span<GradSlot> slots) {
                  detail::contribute(dz, x, slots[0]);
                  detail::contribute(dz, y, slots[1]);
                });
}

Variable sub(const Variable& x, const Variable& y) {
  return binary("sub", BinaryOp::sub, x, y, false,
                [x = x.shape(), y = y.shape()](const Tensor& dz, std::span<GradSlot> slots) {
                  detail::contribute(dz, x, slots[0]);
                  detail::contribute_computed(
                      dz, y, slots[1], [&dz](auto& s, GradView to) { kernels::scale(s, dz.view(), -1, to); });
                });
}

// dx = dz y      dy = dz x
Variable mul(const Variable& x, const Variable& y) {
  return binary("mul", BinaryOp::mul, x, y, true,
                [x = x.value(), y = y.value()](const Tensor& dz, std::span<GradSlot> slots) {
                  detail::contribute_computed(dz, x.shape(), slots[0], combine(BinaryOp::mul, dz, y));
                  detail::contribute_computed(dz, y.shape(), slots[1], combine(BinaryOp::mul, dz, x));
                });
}

// dx = dz / y      dy = -dz x / y^2
Variable div(const Variable& x, const Variable& y) {
  return binary("div", BinaryOp::div, x, y, true,
                [x = x.value(), y = y.value()](const Tensor& dz, std::span<GradSlot> slots) {
                  detail::contribute_computed(dz, x.shape(), slots[0], combine(BinaryOp::div, dz, y));
                  detail::contribute_computed(dz, y.shape(), slots[1],
                                              gradient_by(BinaryGradient::divisor, dz, x, y));
                });
}

Variable maximum(const Variable& x, const Variable& y) {
  return extremum("maximum", BinaryOp::maximum, BinaryGradient::greater, x, y);
}

Variable minimum(const Variable& x, const Variable& y) {
  return extremum("minimum", BinaryOp::minimum, BinaryGradient::less, x, y);
}

Variable where(const Tensor& condition, const Variable& x, const Variable& y) {
  detail::check_floating("where", x);
  detail::check_alike("where", x, y);
  check(condition.defined() && condition.dtype() == DType::u8 &&
            detail::can_combine(condition.device(), x.device()),
        "where: found a condition that is {} on {}, expected u8 on {}",
        condition.defined() ? to_string(condition.dtype()) : "undefined",
        condition.defined() ? condition.context().name() : "no device", x.context().name());
  const Shape values = detail::broadcast_shape("where", x.shape(), y.shape());
  const Shape shape = detail::broadcast_shape("where", condition.shape(), values);
  const NamedRange range("where");
  wait_ready(x, y);
  Tensor z = Tensor::empty(shape, x.dtype(), detail::result_context(x, y, condition));
  on(z.stream(), [&](auto& s) {
    kernels::where(s, condition.view(), x.value().view(), y.value().view(), GradView(z.view()));
  });
  return record(
      "where", z, {x, y},
      [condition, x = x.shape(), y = y.shape()](const Tensor& dz, std::span<GradSlot> slots) {
        const Tensor zero = Tensor::zeros({1}, dz.dtype(), dz.context());
        detail::contribute_computed(dz, x, slots[0], [&](auto& s, GradView to) {
          kernels::where(s, condition.view(), dz.view(), zero.view(), to);
        });
        detail::contribute_computed(dz, y, slots[1], [&](auto& s, GradView to) {
          kernels::where(s, condition.view(), zero.view(), dz.view(), to);
        });
      },
      cost_of_binary(x, y, z, true));
}

}  // namespace convoy
