
#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/runtime/named_range.h"
#include "convoy/kernels/softmax.h"
#include "convoy/kernels/strided_copy.h"

namespace convoy {
namespace {

/// Returns the shape of x with size 1 along `axes`.
Shape reduced_shape(std::string_view op, const Shape& shape, const std::vector<int>& axes) {
  detail::Sizes sizes(shape);
  std::array<bool, Shape::kMaxRank> seen{};
  for (const int each : axes) {
    const int axis = detail::axis_of(op, each, shape);
    bool& is_named = seen[static_cast<std::size_t>(axis)];
    check(!is_named, "{}: found axis {} of {} twice, expected each axis at most once", op, axis,
          shape.text());
    is_named = true;
    sizes[axis] = 1;
  }
  return sizes.shape();
}

/// Returns y without `axes`, which have size 1.
Variable without_axes(const Variable& y, const std::vector<int>& axes) {
  const int rank = y.shape().rank();
  std::array<bool, Shape::kMaxRank> removed{};
  for (const int axis : axes) removed[static_cast<std::size_t>(axis < 0 ? axis + rank : axis)] = true;
  detail::Sizes sizes(y.shape());
  for (int axis = rank - 1; axis >= 0; --axis)
    if (removed[static_cast<std::size_t>(axis)]) sizes.erase(axis);
  return reshape(y, sizes.shape());
}

/// A variable viewed as [outer, n, inner] around one axis.
struct AxisView {
  std::int64_t outer, n, inner;

  AxisView(const Shape& shape, int axis)
      : outer(detail::product_of(shape, 0, axis)),
        n(shape[axis]),
        inner(detail::product_of(shape, axis + 1, shape.rank())) {}
  Shape whole() const { return {outer, n, inner}; }
  Shape reduced() const { return {outer, inner}; }
};

/// The maximum of x along an axis, of the shape `shape`, and its positions.
struct Maximum {
  Tensor values, indices;

  Maximum(const Variable& x, const AxisView& axes, const Shape& shape)
      : values(Tensor::empty(shape, x.dtype(), x.context())),
        indices(Tensor::empty(shape, DType::i32, x.context())) {
    wait_ready(x);
    on(values.stream(), [&](auto& s) {
      kernels::max_axis(s, x.value().reshape(axes.whole()).view(), values.reshape(axes.reduced()).view(),
                        indices.reshape(axes.reduced()).view());
    });
  }
};

/// Returns the axis of x along which an op works, counted from 0. Throws UsageError if it has no elements.
int check_axis(std::string_view op, const Variable& x, int axis) {
  detail::check_floating(op, x);
  axis = detail::axis_of(op, axis, x.shape());
  check(x.shape()[axis] > 0, "{}: found no elements along axis {} of {}, expected at least one", op, axis,
        x.shape().text());
  return axis;
}

/// softmax and log_softmax of the rows of x [rows, C].
template <class Forward, class Backward>
Variable of_rows(std::string_view name, const Variable& x, int axis, Forward forward, Backward backward) {
  axis = check_axis(name, x, axis);
  if (axis != x.shape().rank() - 1) {  // the kernels take rows
    const Variable rows = transpose(x, axis, -1);
    return transpose(of_rows(name, rows, -1, forward, backward), axis, -1);
  }
  const detail::OpScope scope(name, x);
  const Shape rows{x.shape().numel() / x.shape()[-1], x.shape()[-1]};
  Tensor y = Tensor::empty(x.shape(), x.dtype(), x.context());
  on(y.stream(), [&](auto& s) { forward(s, x.value().reshape(rows).view(), y.reshape(rows).view()); });
  return record(
      name, y, {x},
      [y, rows, backward](const Tensor& dy, std::span<GradSlot> dx) {
        GradView to = dx[0].claim();
        to.shape = rows;
        on(dy.stream(), [&](auto& s) { backward(s, dy.reshape(rows).view(), y.reshape(rows).view(), to); });
      },
      {.forward = detail::cost_of(x, {.flops = 5, .reads = 1, .writes = 1}),  // the exponential is one
       .backward = detail::cost_of(x, {.flops = 4, .reads = 2, .writes = 1})});
}

/// Returns `factor` times the sum of all elements.
Variable scaled_sum(std::string_view name, const Variable& x, double factor) {
  detail::check_floating(name, x);
  const detail::OpScope scope(name, x);
  Tensor y = Tensor::empty({1}, x.dtype(), x.context());
  on(y.stream(), [&](auto& s) { kernels::sum(s, x.value().view(), GradView(y.view()), factor); });
  return record(name, y, {x},
                [factor, shape = x.shape()](const Tensor& dy, std::span<GradSlot> dx) {
                  const Tensor each = Tensor::empty({1}, dy.dtype(), dy.context());
                  on(dy.stream(), [&](auto& s) {
                    kernels::scale(s, dy.view(), factor, GradView(each.view()));
                    kernels::strided_copy(s, shape, each.view(), {}, dx[0].claim(),
                                          kernels::Strides::row_major(shape));
                  });
                },
                {.forward = detail::cost_of(x, {.flops = 1, .reads = 1}),
                 .backward = detail::cost_of(x, {.writes = 1})});
}

}  // namespace

Variable sum(const Variable& x) { return scaled_sum("sum", x, 1); }

Variable mean(const Variable& x) {
  check(x.value().numel() > 0, "mean: input {} has no elements", x.shape().text());
  return scaled_sum("mean", x, 1.0 / static_cast<double>(x.value().numel()));
}

Variable sum(const Variable& x, const std::vector<int>& axes, bool keep_axes) {
  const Variable kept = sum_to(x, reduced_shape("sum", x.shape(), axes));
  return keep_axes ? kept : without_axes(kept, axes);
}

Variable mean(const Variable& x, const std::vector<int>& axes, bool keep_axes) {
  const std::int64_t results = reduced_shape("mean", x.shape(), axes).numel();
  const std::int64_t elements = x.shape().numel();
  check(elements > 0 || results == 0, "mean: found no elements along the axes of {}, expected at least one",
        x.shape().text());
  const double terms = results > 0 ? static_cast<double>(elements / results) : 1;
  return scale(sum(x, axes, keep_axes), 1 / terms);
}

Variable variance(const Variable& x, const std::vector<int>& axes, bool keep_axes, bool unbiased) {
  const std::int64_t results = reduced_shape("variance", x.shape(), axes).numel();
  const std::int64_t terms = results > 0 ? x.shape().numel() / results : 0;
  check(terms > (unbiased ? 1 : 0) || results == 0,
        "variance: found {} elements along the axes of {}, expected at least {}", terms, x.shape().text(),
        unbiased ? 2 : 1);
  // A rounded mean leaves distances with a mean of their own, which the second subtraction removes.
  Variable distance = sub(x, mean(x, axes, true));
  distance = sub(distance, mean(distance, axes, true));
  const Variable squares = sum(mul(distance, distance), axes, keep_axes);
  return scale(squares, results > 0 ? 1 / static_cast<double>(terms - (unbiased ? 1 : 0)) : 1);
}

Variable max(const Variable& x, int axis, bool keep_axis) {
  axis = check_axis("max", x, axis);
  const NamedRange range("max");
  const Maximum maximum(x, AxisView(x.shape(), axis), reduced_shape("max", x.shape(), {axis}));
  const Variable y = record("max", maximum.values, {x},
                            [indices = maximum.indices, axes = AxisView(x.shape(), axis)](
                                const Tensor& dy, std::span<GradSlot> dx) {
                              GradView to = dx[0].claim();
                              to.shape = axes.whole();
                              on(dy.stream(), [&](auto& s) {
                                kernels::max_axis_backward(s, dy.reshape(axes.reduced()).view(),
                                                           indices.reshape(axes.reduced()).view(), to);
                              });
                            },
                            {.forward = detail::cost_of(x, {.flops = 1, .reads = 1}),
                             .backward = detail::cost_of(x, {.writes = 1})});
  return keep_axis ? y : squeeze(y, axis);
}

Variable min(const Variable& x, int axis, bool keep_axis) {
  check_axis("min", x, axis);
  return -max(-x, axis, keep_axis);
}

Tensor argmax(const Variable& x, int axis, bool keep_axis) {
  axis = check_axis("argmax", x, axis);
  detail::Sizes sizes(reduced_shape("argmax", x.shape(), {axis}));
  const Tensor indices = Maximum(x, AxisView(x.shape(), axis), sizes.shape()).indices;
  if (keep_axis) return indices;
  sizes.erase(axis);
  return indices.reshape(sizes.shape());
}

Variable softmax(const Variable& x, int axis) {
  return of_rows(
      "softmax", x, axis, [](auto& s, ConstView in, View out) { kernels::softmax(s, in, out); },
      [](auto& s, ConstView dy, ConstView y, GradView dx) { kernels::softmax_backward(s, dy, y, dx); });
}

Variable log_softmax(const Variable& x, int axis) {
  return of_rows(
      "log_softmax", x, axis, [](auto& s, ConstView in, View out) { kernels::log_softmax(s, in, out); },
      [](auto& s, ConstView dy, ConstView y, GradView dx) { kernels::log_softmax_backward(s, dy, y, dx); });
}

}  // namespace convoy
