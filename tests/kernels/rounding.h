// What a GPU's result of any element type is held against: the CPU's, rounded once.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <type_traits>

#include "tests/kernels/array.h"

namespace convoy::testing {

/// What CUDA kernels compute in for arrays of T, and so the CPU that checks them: f32 for the half types.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Of one rounding to T, relative: half the distance from 1 to the next number.
template <class T>
constexpr double unit_roundoff() {
  switch (dtype_of<T>) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::f16: return 0x1p-11;
    default: return 0x1p-8;
  }
}

/// Every element is the expected one, rounded to T; any NaN equals any other.
template <class T>
void expect_rounded(const Array<T>& found, const Array<ComputeType<T>>& expected) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t e = 0; e < found.size(); ++e) {
    const double value = value_of(found[e]);
    const double wanted = value_of(static_cast<T>(expected[e]));
    if (std::isnan(value) && std::isnan(wanted)) continue;
    ASSERT_TRUE(value == wanted && std::signbit(value) == std::signbit(wanted))
        << "element " << e << " of " << found.shape().text() << ": " << value << ", not " << wanted;
  }
}

/// Every element is within `tolerance` and one rounding to T of the expected one.
template <class T, class U>
void expect_rounded_near(const Array<T>& found, const Array<U>& expected, double tolerance) {
  ASSERT_EQ(found.shape(), expected.shape());
  for (std::size_t e = 0; e < found.size(); ++e) {
    const double wanted = value_of(expected[e]);
    const double rounding = unit_roundoff<T>() * (std::abs(wanted) + tolerance);
    ASSERT_NEAR(value_of(found[e]), wanted, tolerance + rounding)
        << "element " << e << " of " << found.shape().text();
  }
}

/// A sum of `terms` products of uniforms in [-1, 1] has size sqrt(terms) / 3; its roundings in T's compute
/// type cost eps sqrt(terms) of that, in any order. One more for what is added to it.
template <class T>
double dot_tolerance(std::int64_t terms) {
  return 4 * 2 * unit_roundoff<ComputeType<T>>() * (static_cast<double>(terms) / 3 + 1);
}

/// The same bits under each order of threads, blocks and streams: the first result is kept.
template <class T>
class Repeats {
 public:
  void expect_same(const Array<T>& found) {
    if (!first_.has_value()) first_.emplace(found);
    expect_same_bits(found, *first_);
  }

 private:
  std::optional<Array<T>> first_;
};

}  // namespace convoy::testing
