// An array for tests of kernels. It can start at an unaligned address, and guard elements on both sides
// detect writes out of bounds.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "convoy/kernels/base/view.h"

namespace convoy::testing {

/// Returns the value of x as a double.
template <class T>
double value_of(T x) {
  if constexpr (std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>) {
    return static_cast<float>(x);
  } else {
    return x;
  }
}

/// An owning array that checks its guard elements in the destructor.
template <class T>
class Array {
 public:
  /// Creates an array filled with `value`. The data begins `offset` elements after an aligned address.
  explicit Array(Shape shape, T value = T{0}, std::size_t offset = 0)
      : shape_(shape),
        start_(kGuard + offset),
        size_(static_cast<std::size_t>(shape.numel())),
        elements_(start_ + size_ + kGuard, kGuardValue) {
    std::fill_n(begin(), shape.numel(), value);
  }
  Array(Shape shape, std::initializer_list<T> values) : Array(shape) {
    std::size_t e = 0;
    for (const T value : values) (*this)[e++] = value;
  }
  ~Array() {
    for (std::size_t e = 0; e < kGuard; ++e) {
      EXPECT_EQ(value_of(elements_[start_ - 1 - e]), value_of(kGuardValue)) << "written before the start";
      EXPECT_EQ(value_of(elements_[start_ + size_ + e]), value_of(kGuardValue)) << "written past the end";
    }
  }
  Array(const Array&) = default;
  Array& operator=(const Array&) = default;

  /// Returns an array of uniform numbers in [-1, 1). They are multiples of 2^-20, so f32 and f64 hold the
  /// same values.
  static Array random(Shape shape, std::uint32_t seed, std::size_t offset = 0) {
    Array out(shape, T{0}, offset);
    std::mt19937 words(seed);
    for (T& element : out) element = static_cast<T>(static_cast<double>(words() >> 11) * 0x1p-20 - 1);
    return out;
  }
  /// Returns a copy with element type U.
  template <class U>
  Array<U> to() const {
    Array<U> out(shape_);
    for (std::size_t e = 0; e < size_; ++e) out[e] = static_cast<U>(value_of((*this)[e]));
    return out;
  }

  T* begin() { return elements_.data() + start_; }
  T* end() { return begin() + size_; }
  const T* begin() const { return elements_.data() + start_; }
  const T* end() const { return begin() + size_; }
  std::size_t size() const { return size_; }
  T& operator[](std::size_t e) { return begin()[e]; }
  const T& operator[](std::size_t e) const { return begin()[e]; }
  const Shape& shape() const { return shape_; }

  View view() { return {begin(), shape_, dtype_of<T>}; }
  ConstView view() const { return {begin(), shape_, dtype_of<T>}; }
  GradView grad(GradMode mode = GradMode::overwrite) { return GradView(view(), mode); }

 private:
  static constexpr std::size_t kGuard = 64;
  static constexpr T kGuardValue = static_cast<T>(-77);

  Shape shape_;
  std::size_t start_, size_;
  std::vector<T> elements_;
};

/// Returns the dot product, computed in f64.
template <class T>
double dot(const Array<T>& a, const Array<T>& b) {
  double sum = 0;
  for (std::size_t e = 0; e < a.size(); ++e) sum += static_cast<double>(a[e]) * static_cast<double>(b[e]);
  return sum;
}

/// Expects every element to be within `tolerance`, and reports the first that is not.
template <class T, class U>
void expect_near(const Array<T>& found, const Array<U>& expected, double tolerance) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t e = 0; e < found.size(); ++e)
    ASSERT_NEAR(value_of(found[e]), value_of(expected[e]), tolerance)
        << "element " << e << " of " << found.shape().text();
}

/// Expects equal bits, except that any NaN equals any other NaN.
template <class T>
void expect_same_bits(const Array<T>& a, const Array<T>& b) {
  ASSERT_EQ(a.shape(), b.shape());
  for (std::size_t e = 0; e < a.size(); ++e)
    if (!std::isnan(value_of(a[e])) || !std::isnan(value_of(b[e]))) {
      ASSERT_EQ(value_of(a[e]), value_of(b[e])) << "element " << e;
    }
}

/// The machine epsilon of f32: the distance from 1 to the next number.
inline constexpr double kEps = std::numeric_limits<float>::epsilon();

}  // namespace convoy::testing
