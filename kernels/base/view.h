// Shapes and non-owning views. A kernel sees a tensor as a pointer, a shape and an element type. All types
// are values: several threads may read one, and copies are independent.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>

#include "convoy/kernels/base/dtype.h"

namespace convoy {

/// The sizes of a row-major array, outermost first. Images are [N, H, W, C] and filters [O, kH, kW, I]. A
/// shape of rank 0 is a scalar.
class Shape {
 public:
  static constexpr int kMaxRank = 6;  // maximum number of axes

  /// Makes a scalar.
  Shape() = default;
  /// Throws UsageError like the constructor from a span: Shape{128, 10}.
  Shape(std::initializer_list<std::int64_t> sizes) : Shape(std::span(sizes.begin(), sizes.size())) {}
  /// Throws UsageError for more than kMaxRank sizes or a negative size.
  explicit Shape(std::span<const std::int64_t> sizes) {
    if (sizes.size() > kMaxRank)
      throw UsageError("found a shape with " + std::to_string(sizes.size()) + " sizes, expected at most 6");
    for (const std::int64_t size : sizes) {
      if (size < 0)
        throw UsageError("found the size " + std::to_string(size) + " in a shape, expected at least 0");
      sizes_[static_cast<std::size_t>(rank_++)] = size;
    }
  }

  /// Returns the number of axes.
  int rank() const { return rank_; }
  /// Returns the size of an axis; a negative `axis` counts from the last one. Expects an axis of the shape,
  /// from -rank() to rank() - 1, and does not check it.
  std::int64_t operator[](int axis) const {
    return sizes_[static_cast<std::size_t>(axis < 0 ? axis + rank_ : axis)];
  }
  /// Returns the number of elements: 1 for a scalar, 0 if any size is 0.
  std::int64_t numel() const {
    std::int64_t product = 1;
    for (const std::int64_t size : sizes()) product *= size;
    return product;
  }
  /// Returns all sizes. The span is valid as long as this shape is.
  std::span<const std::int64_t> sizes() const { return {sizes_.data(), static_cast<std::size_t>(rank_)}; }
  /// Returns the shape as text: "[128, 32, 32, 3]".
  std::string text() const {
    std::string out = "[";
    for (int axis = 0; axis < rank_; ++axis) out += (axis > 0 ? ", " : "") + std::to_string((*this)[axis]);
    return out + "]";
  }
  /// Compares the number of axes and all sizes.
  friend bool operator==(const Shape& a, const Shape& b) {
    return a.rank_ == b.rank_ && a.sizes_ == b.sizes_;
  }

 private:
  // Zero beyond rank_, so that == can compare whole arrays.
  std::array<std::int64_t, kMaxRank> sizes_{};
  int rank_ = 0;
};

/// A non-owning view of a contiguous array that can be written.
struct View {
  void* data = nullptr;      // in the memory of one device
  Shape shape;               // sizes in elements
  DType dtype = DType::f32;  // of the elements

  /// Returns the data as elements of type T, which must be the type of `dtype`; not checked.
  template <class T>
  T* as() const {
    return static_cast<T*>(data);
  }
  /// Returns the number of elements.
  std::int64_t numel() const { return shape.numel(); }
  /// Returns the size in bytes.
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
};

/// A non-owning view of a contiguous array that can only be read.
struct ConstView {
  const void* data = nullptr;  // in the memory of one device
  Shape shape;                 // sizes in elements
  DType dtype = DType::f32;    // of the elements

  ConstView() = default;
  /// Views sizes.numel() elements of `type` from `bytes` on.
  ConstView(const void* bytes, Shape sizes, DType type) : data(bytes), shape(sizes), dtype(type) {}
  /// Views the same elements.
  // NOLINTNEXTLINE: a View converts implicitly.
  ConstView(const View& view) : data(view.data), shape(view.shape), dtype(view.dtype) {}

  /// Returns the data as elements of type T, which must be the type of `dtype`; not checked.
  template <class T>
  const T* as() const {
    return static_cast<const T*>(data);
  }
  /// Returns the number of elements.
  std::int64_t numel() const { return shape.numel(); }
  /// Returns the size in bytes.
  std::size_t bytes() const { return static_cast<std::size_t>(numel()) * size_of(dtype); }
};

/// How a backward kernel stores its result. The engine decides: the first contribution to a gradient
/// overwrites, and later ones accumulate. Gradients are therefore never zeroed first.
enum class GradMode : std::uint8_t {
  overwrite,   // dx = result
  accumulate,  // dx += result
};

/// The destination of a gradient and how it is stored. A null pointer means that the gradient is not wanted.
struct GradView : View {
  GradMode mode = GradMode::overwrite;  // how the kernel stores its result

  GradView() = default;
  /// Wants a gradient in the elements of `view`.
  explicit GradView(const View& view, GradMode how = GradMode::overwrite) : View(view), mode(how) {}
  /// Returns whether the kernel must compute the gradient.
  bool wanted() const { return data != nullptr; }
};

}  // namespace convoy
