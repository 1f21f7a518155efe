// Tests of cast(), fill() and assign() on the CPU.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

#include "convoy/kernels/elementwise.h"
#include "tests/kernels/half_reference.h"

namespace convoy {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class T>
inline constexpr bool kIsNarrow = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16>;

template <class T>
double as_double(T x) {
  if constexpr (kIsNarrow<T>) {
    return static_cast<float>(x);
  } else {
    return x;
  }
}

/// Returns x converted to T by the definition in the header. 16-bit types are not rounded to float first.
template <class T>
T expected(double x) {
  if constexpr (kIsNarrow<T>) {
    if (std::isnan(x)) return T(std::nanf(""));
    T half;
    half.bits = testing::nearest_half<T>(x);
    return half;
  } else if constexpr (std::is_integral_v<T>) {
    if (std::isnan(x)) return 0;
    if (x <= std::numeric_limits<T>::min()) return std::numeric_limits<T>::min();
    if (x >= std::numeric_limits<T>::max()) return std::numeric_limits<T>::max();
    const double below = std::floor(x);
    const double fraction = x - below;
    const bool up = fraction > 0.5 || (fraction == 0.5 && std::fmod(below, 2) != 0);
    return static_cast<T>(below + (up ? 1 : 0));
  } else {
    return static_cast<T>(x);
  }
}

/// Returns the bits of the result, with one value for all NaNs.
template <class T>
double comparable(T x) {
  if constexpr (kIsNarrow<T>) {
    return std::isnan(as_double(x)) ? -1 : x.bits;
  } else {
    return std::isnan(as_double(x)) ? -1e-300 : as_double(x);
  }
}

template <class To, class From>
void check_cast(const std::vector<From>& from, int threads = 1) {
  CpuStream stream({.threads = threads});
  const auto n = std::ssize(from);
  std::vector<To> to(from.size());
  kernels::cast(stream, ConstView(from.data(), {n}, dtype_of<From>), View{to.data(), {n}, dtype_of<To>});
  for (std::size_t i = 0; i < from.size(); ++i)
    ASSERT_EQ(comparable(to[i]), comparable(expected<To>(as_double(from[i]))))
        << to_string(dtype_of<From>) << " to " << to_string(dtype_of<To>) << ": " << as_double(from[i]);
}

TEST(Cast, ConvertsEveryPairOfTypes) {
  const std::vector<double> values = {
      0,     -0.0,     1,         -1,         0.5,        1.5,           2.5,       -0.5,    -1.5,
      -2.5,  0.1,      1.0 / 3,   254.5,      255,        255.49,        255.5,     256,     -3,
      300,   65504,    65519.996, 65520,      1e5,        6e-8,          2.98e-8,   1e-10,   1e-39,
      1e-46, 16777217, 1e10,      -1e10,      2147483647, -2147483648.0, 3e9,       3.39e38, 3.4028e38,
      1e39,  1e300,    kInfinity, -kInfinity, kNan,       -65520,        1 - 1e-12, 1e-300};
  for (const DType from_type : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8}) {
    dispatch(kAllTypes, from_type, [&](auto from_zero) {
      using From = decltype(from_zero);
      std::vector<From> from;
      for (const double value : values) from.push_back(expected<From>(value));
      for (const DType to_type : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8})
        dispatch(kAllTypes, to_type, [&](auto to_zero) { check_cast<decltype(to_zero)>(from); });
    });
  }
}

template <class T>
class CastToHalf : public ::testing::Test {};
using HalfTypes = ::testing::Types<float16, bfloat16>;
TYPED_TEST_SUITE(CastToHalf, HalfTypes);

TYPED_TEST(CastToHalf, RoundsDoubleOnce) {
  // If it were rounded to float first, a double close to the midpoint of two values would become the
  // midpoint.
  std::vector<double> values;
  for (std::uint32_t bits = 0; bits < testing::kInfinityBits<TypeParam>; ++bits) {
    const double middle =
        (testing::value_by_fields<TypeParam>(bits) + testing::value_by_fields<TypeParam>(bits + 1)) / 2;
    for (const double value : {middle, std::nextafter(middle, 0.0), std::nextafter(middle, kInfinity)}) {
      values.push_back(value);
      values.push_back(-value);
    }
  }
  check_cast<TypeParam>(values);
}

TYPED_TEST(CastToHalf, RoundsIntegerOnce) {
  // Between 2^30 and 2^31 the spacing of bf16 is 2^23 and that of float is 2^7. The values are ties of bf16,
  // shifted by less than float can represent.
  std::vector<std::int32_t> values;
  for (std::int32_t step = 0; step < 128; ++step)
    for (const std::int32_t shift : {-1, 0, 1})
      values.push_back((1 << 30) + (step << 23) + (1 << 22) + shift);
  for (std::int32_t value = 2048; value < 70000; ++value) values.push_back(value);
  check_cast<TypeParam>(values);
}

TEST(Cast, ConvertsLongArrays) {
  std::vector<double> values(100003);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i) * 1.37 - 5000;
  check_cast<float>(values, 3);
  check_cast<std::int32_t>(values, 3);
  check_cast<float16>(values, 3);
  check_cast<float>(std::vector<double>{});
}

TEST(Fill, ConvertsValueLikeCast) {
  CpuStream stream({.threads = 1});
  for (const DType dtype : {DType::f64, DType::f32, DType::f16, DType::bf16, DType::i32, DType::u8}) {
    dispatch(kAllTypes, dtype, [&](auto zero) {
      using T = decltype(zero);
      for (const double value : {0.0, 1.0, 2.5, 300.25, -7.0}) {
        std::vector<T> to(33);
        kernels::fill(stream, value, View{to.data(), {33}, dtype});
        for (const T element : to)
          ASSERT_EQ(comparable(element), comparable(expected<T>(value))) << to_string(dtype);
      }
    });
  }
}

TEST(Assign, CopiesOrFillsEachArray) {
  CpuStream stream({.threads = 1});
  const std::vector<std::int32_t> from = {3, -1, 7};
  std::vector<std::int32_t> copy(3), filled(2);
  double number = 0;
  const kernels::Assignment arrays[] = {
      {.to = View{copy.data(), {3}, DType::i32}, .from = ConstView{from.data(), {3}, DType::i32}},
      {.to = View{filled.data(), {2}, DType::i32}, .value = 4},
      {.to = View{&number, {1}, DType::f64}, .value = 0.1}};
  kernels::assign(stream, arrays);
  EXPECT_EQ(copy, from);
  EXPECT_EQ(filled, std::vector<std::int32_t>({4, 4}));
  EXPECT_EQ(number, 0.1);
}

}  // namespace
}  // namespace convoy
