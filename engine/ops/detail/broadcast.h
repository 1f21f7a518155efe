// Broadcasting of the operands of an op. Private to engine/ops.
#pragma once

#include <array>
#include <string_view>

#include "convoy/engine/autograd/variable.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/reduce_axes.h"

namespace convoy::detail {

/// Returns the shape to which both shapes are broadcast. Throws UsageError if there is none.
inline Shape broadcast_shape(std::string_view op, const Shape& x, const Shape& y) {
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  const int rank = x.rank() > y.rank() ? x.rank() : y.rank();
  for (int axis = 1; axis <= rank; ++axis) {  // from the last axis
    const std::int64_t from_x = axis <= x.rank() ? x[-axis] : 1, from_y = axis <= y.rank() ? y[-axis] : 1;
    check(from_x == from_y || from_x == 1 || from_y == 1,
          "{}: found the shapes {} and {}, expected sizes that are equal or 1 along each axis", op, x.text(),
          y.text());
    sizes[static_cast<std::size_t>(rank - axis)] = from_x == 1 ? from_y : from_x;
  }
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank)));
}

/// Returns `shape` with leading axes of size 1, so that it has `rank` axes.
inline Shape padded_shape(const Shape& shape, int rank) {
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  sizes.fill(1);
  for (int axis = 1; axis <= shape.rank(); ++axis)
    sizes[static_cast<std::size_t>(rank - axis)] = shape[-axis];
  return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(rank)));
}

/// Contributes `gradient`, which has the shape of the result, to an operand of shape `operand` that was
/// broadcast: sums over the repetitions.
inline void contribute(const Tensor& gradient, const Shape& operand, GradSlot& slot) {
  if (!slot.wanted()) return;
  if (operand == gradient.shape()) return slot.alias_or_accumulate(gradient);
  GradView to = slot.claim();
  to.shape = padded_shape(operand, gradient.shape().rank());
  on(gradient.stream(), [&](auto& s) { kernels::sum_axes(s, gradient.view(), 1, to); });
}

/// As contribute(), for a gradient that `compute(stream, to)` writes to an array of the shape of `dz`.
template <class F>
void contribute_computed(const Tensor& dz, const Shape& operand, GradSlot& slot, F compute) {
  if (!slot.wanted()) return;
  if (operand == dz.shape()) return on(dz.stream(), [&](auto& s) { compute(s, slot.claim()); });
  const Tensor gradient = Tensor::empty_like(dz);
  on(dz.stream(), [&](auto& s) { compute(s, GradView(gradient.view())); });
  contribute(gradient, operand, slot);
}

}  // namespace convoy::detail
