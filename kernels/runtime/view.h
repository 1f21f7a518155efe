// All that a kernel sees of a tensor: a pointer, a shape and an element type. Views own nothing.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "kernels/runtime/dtype.h"

namespace convoy {

/// Sizes of a row-major array, outermost first; images are [N, H, W, C], filters [O, kH, kW, I]. Rank 0 is a
/// scalar.
class Shape {
 public:
  static constexpr int kMaxRank = 6;

  Shape() = default;
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  explicit Shape(std::span<const std::int64_t> sizes) {
    if (sizes.size() > kMaxRank) throw UsageError("a shape has at most 6 dimensions");
    for (const std::int64_t size : sizes) {
      if (size < 0) throw UsageError("a shape has no negative sizes");
      sizes_[static_cast<std::size_t>(rank_++)] = size;
    }
  }

  int rank() const { return rank_; }
  std::int64_t operator[](int axis) const {
    return sizes_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)];
  }
  /// Number of elements: 1 for a scalar, 0 where any size is 0.
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes()) product *= size;
    return product;
  }
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), static_cast<std::size_t>(rank_)}; }
  /// "[128, 32, 32, 3]".
  std::string text() const {
    std::string out = "[";
    for (int axis = 0; axis < rank_; ++axis) out += (axis > 0 ? ", " : "") + std::to_string((*this)[axis]);
    return out + "]";
  }
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && a.sizes_ == b.sizes_;
  }

 private:
  std::array<std::int64_t, kMaxRank> sizes_{};  // zero beyond rank_, so that == may compare whole arrays
  int rank_ = 0;
};

struct View {
  void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
};

struct ConstView {
  const void* data = nullptr;
  Shape shape;
  DType dtype = DType::f32;

  ConstView() = default;
  ConstView(const void* bytes, Shape sizes, DType type) : data(bytes), shape(sizes), dtype(type) {}
  ConstView(const View& view)
      : data(view.data), shape(view.shape), dtype(view.dtype) {}  // NOLINT: a view of less

  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  std::int64_t numel() const { return shape.numel(); }
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
};

/// What a backward kernel does with its result. The engine decides: the first contribution to a gradient
/// writes, later ones add, so nothing is ever zeroed first.
enum class Mode : std::uint8_t { write, add };

/// Where a backward kernel puts a gradient, and how. A null pointer: this gradient is not wanted.
struct GradView : View {
  Mode mode = Mode::write;

  GradView() = default;
  explicit GradView(const View& view, Mode how = Mode::write) : View(view), mode(how) {}
  bool wanted() const { return data != nullptr; }
};

}  // namespace convoy
