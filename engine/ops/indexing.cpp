#include "convoy/engine/ops/detail.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/gather.h"

namespace convoy {
namespace {

using detail::bytes_of, detail::product_of;

/// Checks the type and the device of indices.
void check_indices(std::string_view op, const Tensor& indices, const Variable& x) {
  check(indices.defined() && indices.dtype() == DType::i32, "{}: indices are {}, expected i32", op,
        indices.defined() ? to_string(indices.dtype()) : "undefined");
  check(detail::can_combine(indices.device(), x.device()), "{}: indices are on {}, expected {} as the input",
        op, indices.context().name(), x.context().name());
}

/// Checks on the CPU that indices are from 0 to size - 1.
void check_range(std::string_view op, const Tensor& indices, std::int64_t size) {
  if (indices.context().kind() != DeviceKind::cpu) return;
  const auto* values = indices.view().as<std::int32_t>();
  for (std::int64_t i = 0; i < indices.numel(); ++i)
    check(0 <= values[i] && values[i] < size, "{}: index {} at position {}, expected 0 to {}", op, values[i],
          i, size - 1);
}

/// Returns the cost of choosing y from x, and of the sums of the gradient, whose other elements are zeros.
OpCost cost_of_choice(const Variable& x, const Tensor& indices, const Tensor& y) {
  return {.forward = {.bytes = bytes_of(indices) + 2 * bytes_of(y)},
          .backward = {.flops = y.numel(), .bytes = bytes_of(indices) + bytes_of(y) + bytes_of(x)}};
}

/// Records the choice of slices of x at the indices of an axis, as a result of the given shape.
Variable selected(std::string_view name, const Variable& x, int axis, const Tensor& indices,
                  const Shape& shape) {
  const Shape from{product_of(x.shape(), 0, axis), x.shape()[axis],
                   product_of(x.shape(), axis + 1, x.shape().rank())};
  const Shape to{from[0], indices.numel(), from[2]};
  check_range(name, indices, from[1]);
  const detail::OpScope scope(name, x);
  Tensor y = Tensor::empty(shape, x.dtype(), detail::result_context(x, indices));
  on(y.stream(), [&](auto& s) {
    kernels::index_select_forward(s, x.value().reshape(from).view(), indices.view(), y.reshape(to).view());
  });
  return record(
      name, y, {x},
      [from, to, indices](const Tensor& dy, std::span<GradSlot> slots) {
        on(dy.stream(), [&](auto& s) {
          GradView dx = slots[0].claim();
          dx.shape = from;
          kernels::index_select_backward(s, dy.reshape(to).view(), indices.view(), dx);
        });
      },
      cost_of_choice(x, indices, y));
}

}  // namespace

Variable index_select(const Variable& x, int axis, const Tensor& indices) {
  axis = detail::axis_of("index_select", axis, x.shape());
  check_indices("index_select", indices, x);
  check(indices.shape().rank() == 1, "index_select: indices {} have {} dimensions, expected 1",
        indices.shape().text(), indices.shape().rank());
  detail::Sizes sizes(x.shape());
  sizes[axis] = indices.numel();
  return selected("index_select", x, axis, indices, sizes.shape());
}

Variable embedding(const Variable& weight, const Tensor& indices) {
  detail::check_rank("embedding", "weight", weight.shape(), 2);
  check_indices("embedding", indices, weight);
  detail::Sizes sizes(indices.shape());
  sizes.insert(indices.shape().rank(), weight.shape()[1]);
  return selected("embedding", weight, 0, indices, sizes.shape());
}

}  // namespace convoy
