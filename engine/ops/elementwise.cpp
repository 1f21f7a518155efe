#include "convoy/kernels/elementwise.h"

#include "convoy/engine/ops/arithmetic.h"
#include "convoy/engine/ops/detail/checks.h"
#include "convoy/engine/ops/detail/cost.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/runtime/named_range.h"

namespace convoy {
namespace {

using detail::cost_of;
using detail::PerElement;

/// The tensor that an activation's backward needs besides dy.
enum class Saves : std::uint8_t { input, output };

/// Floating-point operations per element.
struct Flops {
  std::int64_t forward = 0, backward = 0;
};

template <class Forward, class Backward>
Variable activation(std::string_view name, const Variable& x, Saves saves, Flops flops, Forward forward,
                    Backward backward) {
  detail::check_floating(name, x);
  const NamedRange range(name);
  wait_ready(x);
  Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](auto& s) { forward(s, x.value().view(), y.view()); });
  return record(
      name, y, {x},
      [saved = saves == Saves::input ? x.value() : y, backward](const Tensor& dy, std::span<GradSlot> dx) {
        on(dy.stream(), [&](auto& s) { backward(s, dy.view(), saved.view(), dx[0].claim()); });
      },
      {.forward = cost_of(x, {.flops = flops.forward, .reads = 1, .writes = 1}),
       .backward = cost_of(x, {.flops = flops.backward, .reads = 2, .writes = 1})});
}

}  // namespace

Variable scale(const Variable& x, double a) {
  detail::check_floating("scale", x);
  const NamedRange range("scale");
  wait_ready(x);
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
  const NamedRange range("add_scalar");
  wait_ready(x);
  Tensor y = Tensor::empty_like(x.value());
  on(y.stream(), [&](auto& s) { kernels::add_scalar(s, x.value().view(), a, y.view()); });
  return record("add_scalar", y, {x},
                [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].alias_or_accumulate(dy); },
                {.forward = cost_of(x, {.flops = 1, .reads = 1, .writes = 1})}, {{"addend", a}});
}

Variable relu(const Variable& x) {
  return activation(
      "relu", x, Saves::output, {.forward = 1, .backward = 1},
      [](auto& s, ConstView in, View out) { kernels::relu_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView y, GradView dx) { kernels::relu_backward(s, dy, y, dx); });
}

// The normal distribution function and its density count as four operations each.
Variable gelu(const Variable& x) {
  return activation(
      "gelu", x, Saves::input, {.forward = 5, .backward = 11},
      [](auto& s, ConstView in, View out) { kernels::gelu_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView in, GradView dx) { kernels::gelu_backward(s, dy, in, dx); });
}

Variable silu(const Variable& x) {
  return activation(
      "silu", x, Saves::input, {.forward = 5, .backward = 9},
      [](auto& s, ConstView in, View out) { kernels::silu_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView in, GradView dx) { kernels::silu_backward(s, dy, in, dx); });
}

Variable hardswish(const Variable& x) {
  return activation(
      "hardswish", x, Saves::input, {.forward = 5, .backward = 5},
      [](auto& s, ConstView in, View out) { kernels::hardswish_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView in, GradView dx) { kernels::hardswish_backward(s, dy, in, dx); });
}

Variable tanh(const Variable& x) {
  return activation(
      "tanh", x, Saves::output, {.forward = 1, .backward = 3},
      [](auto& s, ConstView in, View out) { kernels::tanh_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView y, GradView dx) { kernels::tanh_backward(s, dy, y, dx); });
}

Variable sigmoid(const Variable& x) {
  return activation(
      "sigmoid", x, Saves::output, {.forward = 4, .backward = 3},
      [](auto& s, ConstView in, View out) { kernels::sigmoid_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView y, GradView dx) { kernels::sigmoid_backward(s, dy, y, dx); });
}

Variable exp(const Variable& x) {
  return activation(
      "exp", x, Saves::output, {.forward = 1, .backward = 1},
      [](auto& s, ConstView in, View out) { kernels::exp_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView y, GradView dx) { kernels::exp_backward(s, dy, y, dx); });
}

Variable log(const Variable& x) {
  return activation(
      "log", x, Saves::input, {.forward = 1, .backward = 1},
      [](auto& s, ConstView in, View out) { kernels::log_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView in, GradView dx) { kernels::log_backward(s, dy, in, dx); });
}

Variable sqrt(const Variable& x) {
  return activation(
      "sqrt", x, Saves::output, {.forward = 1, .backward = 2},
      [](auto& s, ConstView in, View out) { kernels::sqrt_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView y, GradView dx) { kernels::sqrt_backward(s, dy, y, dx); });
}

Variable abs(const Variable& x) {
  return activation(
      "abs", x, Saves::input, {.forward = 1, .backward = 1},
      [](auto& s, ConstView in, View out) { kernels::abs_forward(s, in, out); },
      [](auto& s, ConstView dy, ConstView in, GradView dx) { kernels::abs_backward(s, dy, in, dx); });
}

Variable pow(const Variable& x, double p) {
  return activation(
      "pow", x, Saves::input, {.forward = 1, .backward = 3},
      [p](auto& s, ConstView in, View out) { kernels::pow_forward(s, in, p, out); },
      [p](auto& s, ConstView dy, ConstView in, GradView dx) { kernels::pow_backward(s, dy, in, p, dx); });
}

Variable dropout(const Variable& x, const Tensor& sample_ids, double p, Random random,
                 const Tensor& device_epoch) {
  detail::check_floating("dropout", x);
  check(x.shape().rank() >= 1, "dropout: input is a scalar, expected [N, …]");
  check(p >= 0 && p < 1, "dropout: p = {}, expected 0 <= p < 1", p);
  detail::check_indices("dropout", "sample ids", sample_ids, x);
  if (device_epoch.defined()) {
    check(device_epoch.dtype() == DType::i32 && device_epoch.shape() == Shape{1} &&
              detail::can_combine(device_epoch.device(), x.device()),
          "dropout: device_epoch is {} {} on {}, expected i32 [1] on {}", to_string(device_epoch.dtype()),
          device_epoch.shape().text(), device_epoch.context().name(), x.context().name());
    random.cell = device_epoch.view().as<std::int32_t>();
  }
  const NamedRange range("dropout");
  wait_ready(x);
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
  const NamedRange range("cast");
  wait_ready(x);
  const Tensor& copy = x.low_precision_copy();
  const bool is_kept = copy.defined() && copy.dtype() == dtype;
  const Tensor y = is_kept ? copy : x.value().to(dtype);
  const Cost cost{.bytes = detail::bytes_of(x) + detail::bytes_of(y)};
  // The gradient of a leaf with a copy is usually kept as it is.
  return record(
      "cast", y, {x}, [](const Tensor& dy, std::span<GradSlot> dx) { dx[0].contribute_cast(dy); },
      is_kept ? OpCost{} : OpCost{.forward = cost, .backward = cost});
}

}  // namespace convoy
