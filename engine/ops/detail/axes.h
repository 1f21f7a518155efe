// Axes as arguments of ops. Private to engine/ops.
#pragma once

#include <array>
#include <string_view>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/view.h"

namespace convoy::detail {

/// Returns `axis`, counted from the first one, of `rank` axes. Throws UsageError if there is no such axis.
inline int axis_of(std::string_view op, int axis, const Shape& shape, int rank) {
  check(axis >= -rank && axis < rank, "{}: found axis {} for {}, expected {} to {}", op, axis, shape.text(),
        -rank, rank - 1);
  return axis < 0 ? axis + rank : axis;
}
inline int axis_of(std::string_view op, int axis, const Shape& shape) {
  return axis_of(op, axis, shape, shape.rank());
}

/// The sizes of a shape, for changes axis by axis.
class Sizes {
 public:
  explicit Sizes(const Shape& shape) : rank_(shape.rank()) {
    for (int axis = 0; axis < rank_; ++axis) (*this)[axis] = shape[axis];
  }
  std::int64_t& operator[](int axis) { return sizes_[static_cast<std::size_t>(axis)]; }
  void insert(int axis, std::int64_t size) {
    for (int i = rank_++; i > axis; --i) (*this)[i] = (*this)[i - 1];
    (*this)[axis] = size;
  }
  void erase(int axis) {
    --rank_;
    for (int i = axis; i < rank_; ++i) (*this)[i] = (*this)[i + 1];
  }
  Shape shape() const {
    return Shape(std::span<const std::int64_t>(sizes_.data(), static_cast<std::size_t>(rank_)));
  }

 private:
  std::array<std::int64_t, Shape::kMaxRank + 1> sizes_{};  // Shape refuses one more than its maximum
  int rank_;
};

}  // namespace convoy::detail
