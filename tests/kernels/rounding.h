// Comparison of GPU results of any element type with CPU results that are rounded once.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <type_traits>

#include "tests/kernels/array.h"

namespace convoy::testing {

/// The type in which CUDA kernels compute for arrays of T, and in which the CPU computes the expected values:
/// f32 for f16 and bf16.
template <class T>
using ComputeType = std::conditional_t<std::is_same_v<T, double>, double, float>;

/// Returns the maximum relative error of one rounding to T: half the distance from 1 to the next number.
template <class T>
constexpr double unit_roundoff() {
  switch (dtype_of<T>) {
    case DType::f64: return 0x1p-53;
    case DType::f32: return 0x1p-24;
    case DType::f16: return 0x1p-11;
    default: return 0x1p-8;
  }
}

/// Expects every element to be the expected one, rounded to T. Any NaN equals any other NaN.
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

/// Expects every element to be within `tolerance` plus one rounding to T of the expected one.
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

/// Returns the error bound of a dot product. A sum of `terms` products of uniform numbers in [-1, 1] has
/// magnitude sqrt(terms) / 3. Its relative rounding error in the compute type of T is eps sqrt(terms), in any
/// order. One more term accounts for an added value.
template <class T>
double dot_tolerance(std::int64_t terms) {
  return 4 * 2 * unit_roundoff<ComputeType<T>>() * (static_cast<double>(terms) / 3 + 1);
}

/// Checks that results have the same bits in each order of threads, blocks and streams. Keeps the first
/// result.
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
