// The axes of a reduction, split into those that remain and those that are summed.
#pragma once

#include "convoy/kernels/base/loop_nest.h"

namespace convoy::kernels {

/// The loops of y = sum of x over the axes along which y has size 1: over the elements of y, and for each of
/// them over the elements of x that it sums.
struct ReductionAxes {
  LoopNest<1> kept, reduced;  // of x

  ReductionAxes(const Shape& x, const Shape& y)
      : kept(y, {kept_strides(x, y, true)}), reduced(reduced_shape(x, y), {kept_strides(x, y, false)}) {}

 private:
  /// Returns the strides of x along the axes that remain, or along those that are summed; 0 along the others.
  static Strides kept_strides(const Shape& x, const Shape& y, bool kept) {
    Strides strides = Strides::row_major(x);
    for (int axis = 0; axis < x.rank(); ++axis)
      if ((x[axis] == y[axis]) != kept) strides.of_axis[static_cast<std::size_t>(axis)] = 0;
    return strides;
  }
  /// Returns the sizes of x along the axes that are summed, and 1 along the others.
  static Shape reduced_shape(const Shape& x, const Shape& y) {
    std::array<std::int64_t, Shape::kMaxRank> sizes{};
    for (int axis = 0; axis < x.rank(); ++axis)
      sizes[static_cast<std::size_t>(axis)] = x[axis] == y[axis] ? 1 : x[axis];
    return Shape(std::span<const std::int64_t>(sizes.data(), static_cast<std::size_t>(x.rank())));
  }
};

}  // namespace convoy::kernels
