#include <algorithm>

#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/broadcast.h"
#include "convoy/kernels/elementwise.h"

namespace convoy {
namespace {

using detail::cost_of;
using kernels::UnaryOp;

/// The name of a unary op, and its floating-point operations per element.
struct UnaryRow {
  UnaryOp op;
  std::string_view name;
  std::int64_t forward_flops, backward_flops;
};
// The normal distribution function and its density count as four operations each.
constexpr UnaryRow kUnaryRows[] = {{UnaryOp::relu, "relu", 1, 1},
                                   {UnaryOp::gelu, "gelu", 5, 11},
                                   {UnaryOp::silu, "silu", 5, 9},
                                   {UnaryOp::hardswish, "hardswish", 5, 5},
                                   {UnaryOp::tanh, "tanh", 1, 3},
                                   {UnaryOp::sigmoid, "sigmoid", 4, 3},
                                   {UnaryOp::exp, "exp", 1, 1},
                                   {UnaryOp::log, "log", 1, 1},
                                   {UnaryOp::sqrt, "sqrt", 1, 2},
                                   {UnaryOp::abs, "abs", 1, 1},
                                   {UnaryOp::pow, "pow", 1, 3},
                                   {UnaryOp::clamp, "clamp", 2, 2},
                                   {UnaryOp::hardtanh, "hardtanh", 2, 2},
                                   {UnaryOp::leaky_relu, "leaky_relu", 2, 2},
                                   {UnaryOp::elu, "elu", 3, 3},
                                   {UnaryOp::softplus, "softplus", 6, 6},
                                   {UnaryOp::gelu_tanh, "gelu_tanh", 9, 16},
                                   {UnaryOp::hardsigmoid, "hardsigmoid", 4, 3}};

/// Applies `op` to x. Saves the result for backward if it suffices, else x.
Variable unary(UnaryOp op, const Variable& x, kernels::UnaryNumbers numbers = {}) {
  const UnaryRow& row = *std::ranges::find(kUnaryRows, op, &UnaryRow::op);
  detail::check_floating(row.name, x);
  const detail::OpScope scope(row.name, x);
  Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](auto& s) { kernels::unary_forward(s, op, x.value().view(), y.view(), numbers); });
  return record(
      row.name, y, {x},
      [op, numbers, saved = uses_output(op) ? y : x.value()](const Tensor& dy, std::span<GradSlot> dx) {
        on(dy.stream(),
           [&](auto& s) { kernels::unary_backward(s, op, dy.view(), saved.view(), dx[0].claim(), numbers); });
      },
      {.forward = cost_of(x, {.flops = row.forward_flops, .reads = 1, .writes = 1}),
       .backward = cost_of(x, {.flops = row.backward_flops, .reads = 2, .writes = 1})},
      op < UnaryOp::pow ? std::vector<OpAttribute>()
                        : std::vector<OpAttribute>{{"p", numbers.p}, {"q", numbers.q}});
}

}  // namespace

Variable scale(const Variable& x, double a) {
  detail::check_floating("scale", x);
  const detail::OpScope scope("scale", x);
  Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](auto& s) { kernels::scale(s, x.value().view(), a, GradView(y.view())); });
  const Cost cost = cost_of(x, {.flops = 1, .reads = 1, .writes = 1});
  return record("scale", y, {x},
                [a](const Tensor& dy, std::span<GradSlot> dx) {
                  on(dy.stream(), [&](auto& s) { kernels::scale(s, dy.view(), a, dx[0].claim()); });
                },
                {.forward = cost, .backward = cost}, {{"factor", a}});
}

Variable add_scalar(const Variable& x, double a) {
  detail::check_floating("add_scalar", x);
  const detail::OpScope scope("add_scalar", x);
  Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](auto& s) { kernels::add_scalar(s, x.value().view(), a, y.view()); });
  return record("add_scalar", y, {x},
                [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].alias_or_accumulate(dy); },
                {.forward = cost_of(x, {.flops = 1, .reads = 1, .writes = 1})}, {{"addend", a}});
}

Variable relu(const Variable& x) { return unary(UnaryOp::relu, x); }
Variable gelu(const Variable& x) { return unary(UnaryOp::gelu, x); }
Variable silu(const Variable& x) { return unary(UnaryOp::silu, x); }
Variable hardswish(const Variable& x) { return unary(UnaryOp::hardswish, x); }
Variable tanh(const Variable& x) { return unary(UnaryOp::tanh, x); }
Variable sigmoid(const Variable& x) { return unary(UnaryOp::sigmoid, x); }
Variable exp(const Variable& x) { return unary(UnaryOp::exp, x); }
Variable log(const Variable& x) { return unary(UnaryOp::log, x); }
Variable sqrt(const Variable& x) { return unary(UnaryOp::sqrt, x); }
Variable abs(const Variable& x) { return unary(UnaryOp::abs, x); }
Variable pow(const Variable& x, double p) { return unary(UnaryOp::pow, x, {p}); }
Variable clamp(const Variable& x, double low, double high) { return unary(UnaryOp::clamp, x, {low, high}); }
Variable hardtanh(const Variable& x, double low, double high) {
  return unary(UnaryOp::hardtanh, x, {low, high});
}
Variable leaky_relu(const Variable& x, double slope) { return unary(UnaryOp::leaky_relu, x, {slope}); }
Variable elu(const Variable& x, double alpha) { return unary(UnaryOp::elu, x, {alpha}); }
Variable softplus(const Variable& x, double beta, double threshold) {
  check(beta > 0, "softplus: beta is {}, expected a positive number", beta);
  return unary(UnaryOp::softplus, x, {beta, threshold});
}
Variable gelu_tanh(const Variable& x) { return unary(UnaryOp::gelu_tanh, x); }
Variable hardsigmoid(const Variable& x) { return unary(UnaryOp::hardsigmoid, x); }

Variable dropout(const Variable& x, const Tensor& sample_ids, double p, Random random,
                 const Tensor& device_epoch) {
  detail::check_floating("dropout", x);
  check(x.shape().rank() >= 1, "dropout: input is a scalar, expected [N, …]");
  check(p >= 0 && p < 1, "dropout: p = {}, expected 0 <= p < 1", p);
  detail::check_array("dropout", "sample ids", sample_ids, DType::i32, {x.shape()[0]}, x);
  if (device_epoch.defined()) {
    check(device_epoch.dtype() == DType::i32 && device_epoch.shape() == Shape{1} &&
              detail::can_combine(device_epoch.device(), x.device()),
          "dropout: device_epoch is {} {} on {}, expected i32 [1] on {}", to_string(device_epoch.dtype()),
          device_epoch.shape().text(), device_epoch.context().name(), x.context().name());
    random.cell = device_epoch.view().as<std::int32_t>();
  }
  const detail::OpScope scope("dropout", x);
  Tensor y = Tensor::empty(x.shape(), x.dtype(), detail::result_context(x, sample_ids));
  on(y.stream(), [&](auto& s) {
    kernels::dropout(s, x.value().view(), sample_ids.view(), p, random, GradView(y.view()));
  });
  const Cost cost = cost_of(x, {.flops = 1, .reads = 1, .writes = 1});
  return record("dropout", y, {x},
                [sample_ids, p, random, device_epoch](const Tensor& dy, std::span<GradSlot> dx) {
                  on(dy.stream(), [&](auto& s) {
                    kernels::dropout(s, dy.view(), sample_ids.view(), p, random, dx[0].claim());
                  });
                },
                {.forward = cost, .backward = cost});
}

Variable cast(const Variable& x, DType dtype) {
  detail::check_floating("cast", x);
  check(is_floating(dtype), "cast: target type {}, expected floating point", to_string(dtype));
  if (dtype == x.dtype()) return x;
  const detail::OpScope scope("cast", x);
  const Tensor& copy = x.low_precision_copy();
  const bool is_kept = copy.defined() && copy.dtype() == dtype;
  const Tensor y = is_kept ? copy : x.value().to(dtype);
  const Cost cost{.bytes = detail::bytes_of(x) + detail::bytes_of(y)};
  // The gradient of a leaf with a copy is usually kept as it is.
  return record(
      "cast", y, {x}, [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].contribute_cast(dy); },
      is_kept ? OpCost{} : OpCost{.forward = cost, .backward = cost});
}

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
  const detail::OpScope scope(name, x, y);
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

}  // namespace

Variable detail::binary_op(std::string_view name, BinaryOp op, BinaryGradient by_x, BinaryGradient by_y,
                           const Variable& x, const Variable& y) {
  return binary(name, op, x, y, true,
                [by_x, by_y, x = x.value(), y = y.value()](const Tensor& dz, std::span<GradSlot> slots) {
                  contribute_computed(dz, x.shape(), slots[0], gradient_by(by_x, dz, x, y));
                  contribute_computed(dz, y.shape(), slots[1], gradient_by(by_y, dz, y, x));
                });
}

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
  return detail::binary_op("maximum", BinaryOp::maximum, BinaryGradient::greater, BinaryGradient::greater, x,
                           y);
}

Variable minimum(const Variable& x, const Variable& y) {
  return detail::binary_op("minimum", BinaryOp::minimum, BinaryGradient::less, BinaryGradient::less, x, y);
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
  const detail::OpScope scope("where", x, y);
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
