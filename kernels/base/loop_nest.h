// LoopNest: the common index space of several arrays, each with a stride per axis. Broadcasting is a stride
// of 0, a transposition another order of the strides, and a slice an offset: one loop serves them all.
#pragma once

#include <array>
#include <cstdint>

#include "convoy/kernels/base/view.h"

namespace convoy::kernels {

/// How an array is read or written along the axes of an index space: the offset of the first element, and the
/// distance between neighbors along each axis, in elements.
struct Strides {
  std::int64_t offset = 0;
  std::array<std::int64_t, Shape::kMaxRank> of_axis{};

  /// Returns the strides of a whole row-major array.
  static Strides row_major(const Shape& shape) {
    Strides strides;
    std::int64_t stride = 1;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      strides.of_axis[static_cast<std::size_t>(axis)] = stride;
      stride *= shape[axis];
    }
    return strides;
  }
  /// Returns the strides by which a row-major array of shape `from` is read as an array of shape `to`, by
  /// NumPy's rules: axes are aligned at the last one, and an axis that is missing or of size 1 is repeated.
  static Strides broadcast(const Shape& from, const Shape& to) {
    const Strides own = row_major(from);
    Strides strides;
    for (int axis = 0; axis < from.rank(); ++axis)
      if (from[axis] != 1)
        strides.of_axis[static_cast<std::size_t>(axis + to.rank() - from.rank())] =
            own.of_axis[static_cast<std::size_t>(axis)];
    return strides;
  }
};

/// The loops over the index space `sizes`, in row-major order, for kArrays arrays. Adjacent axes that all
/// arrays walk through alike are merged, and axes of size 1 are dropped, so there are as few loops as
/// possible: at least one.
template <int kArrays>
struct LoopNest {
  int rank = 0;
  std::array<std::int64_t, Shape::kMaxRank> sizes{};
  std::array<Strides, kArrays> strides;

  LoopNest(const Shape& space, const std::array<Strides, kArrays>& arrays) {
    for (std::size_t a = 0; a < kArrays; ++a) strides[a].offset = arrays[a].offset;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(space.rank()); ++axis) {
      const std::int64_t size = space[static_cast<int>(axis)];
      if (size == 1) continue;
      bool merges = rank > 0;
      for (std::size_t a = 0; a < kArrays; ++a)
        merges = merges && strides[a].of_axis[last()] == arrays[a].of_axis[axis] * size;
      if (!merges) {
        ++rank;
        sizes[last()] = 1;
      }
      sizes[last()] *= size;
      for (std::size_t a = 0; a < kArrays; ++a) strides[a].of_axis[last()] = arrays[a].of_axis[axis];
    }
    if (rank == 0) {
      rank = 1;
      sizes[0] = 1;
    }
  }

  /// Returns the index of the innermost axis.
  std::size_t last() const { return static_cast<std::size_t>(rank - 1); }
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (std::size_t axis = 0; axis <= last(); ++axis) product *= sizes[axis];
    return product;
  }
  /// Returns the stride of an array along the innermost axis.
  std::int64_t inner_stride(std::size_t array) const { return strides[array].of_axis[last()]; }
  /// Returns the offsets of the arrays at element `index` of the outer loops, which are all but the
  /// innermost.
  std::array<std::int64_t, kArrays> outer_offsets(std::int64_t index) const {
    std::array<std::int64_t, kArrays> offsets;
    for (std::size_t a = 0; a < kArrays; ++a) offsets[a] = strides[a].offset;
    for (std::size_t axis = last(); axis-- > 0; index /= sizes[axis])
      for (std::size_t a = 0; a < kArrays; ++a) offsets[a] += index % sizes[axis] * strides[a].of_axis[axis];
    return offsets;
  }
};

}  // namespace convoy::kernels
