// Tests of the elementwise kernels, casts and dropout on the CPU.
#include "convoy/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <vector>

#include "convoy/kernels/broadcast.h"
#include "tests/kernels/array.h"
#include "tests/kernels/half_reference.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using testing::Array;

using kernels::UnaryOp;

/// A kernel z = f(x, y).
using Kernel = std::function<void(CpuStream&, ConstView x, ConstView y, GradView z)>;

/// Runs a kernel out of place and in place, with one and three threads, and adds its result to itself. Expects the
/// same bits every time. The values are tested by the op cases.
template <class T>
void expect_same_bits_everywhere(const Kernel& kernel, bool can_add) {
  CpuStream one({.threads = 1}), three({.threads = 3});
  for (const std::int64_t n : {0, 1, 33, 100003}) {
    SCOPED_TRACE("n " + std::to_string(n));
    Array<T> x = Array<T>::random({n}, 1, 3), y = Array<T>::random({n}, 2, 5);
    for (T& element : x) element = std::abs(8 * element);  // in the domain of log
    Array<T> z({n}, T{3}, 1), same({n}, T{4}), on_x = x, on_y = y;
    kernel(one, x.view(), y.view(), z.grad());
    kernel(three, x.view(), y.view(), same.grad());
    testing::expect_same_bits(same, z);
    kernel(three, on_x.view(), y.view(), on_x.grad());
    testing::expect_same_bits(on_x, z);
    kernel(three, x.view(), on_y.view(), on_y.grad());
    testing::expect_same_bits(on_y, z);
    if (!can_add) continue;
    kernel(three, x.view(), y.view(), same.grad(GradMode::accumulate));
    for (T& element : z) element += element;
    testing::expect_same_bits(same, z);
  }
}

template <class T>
class Elementwise : public ::testing::Test {};
using ElementwiseTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Elementwise, ElementwiseTypes);

TYPED_TEST(Elementwise, GivesTheSameBitsInPlaceAndForEveryNumberOfThreads) {
  expect_same_bits_everywhere<TypeParam>(
      [](auto& s, auto x, auto y, auto z) { kernels::add(s, x, y, z, 0.5, -2); }, false);
  expect_same_bits_everywhere<TypeParam>(
      [](auto& s, auto x, auto y, auto z) { kernels::binary(s, kernels::BinaryOp::mul, x, y, z); }, true);
  expect_same_bits_everywhere<TypeParam>([](auto& s, auto x, auto, auto z) { kernels::scale(s, x, 0.3, z); },
                                         true);
  expect_same_bits_everywhere<TypeParam>(
      [](auto& s, auto x, auto, auto z) { kernels::add_scalar(s, x, 0.3, z); }, false);
  for (int op = 0; op <= static_cast<int>(UnaryOp::hardsigmoid); ++op) {
    SCOPED_TRACE("op " + std::to_string(op));
    expect_same_bits_everywhere<TypeParam>(
        [op](auto& s, auto x, auto, auto z) {
          kernels::unary_forward(s, UnaryOp{static_cast<std::uint8_t>(op)}, x, z, {1.5, 2.5});
        },
        false);
    expect_same_bits_everywhere<TypeParam>(
        [op](auto& s, auto x, auto dy, auto z) {
          kernels::unary_backward(s, UnaryOp{static_cast<std::uint8_t>(op)}, dy, x, z, {1.5, 2.5});
        },
        true);
  }
}

TEST(GradViews, DoNotWriteToNull) {
  CpuStream stream({.threads = 1});
  const Array<float> x({3}, 1.0f);
  EXPECT_NO_THROW(kernels::scale(stream, x.view(), 2, GradView()));
  EXPECT_NO_THROW(kernels::unary_backward(stream, kernels::UnaryOp::relu, x.view(), x.view(),
                                          GradView(View{nullptr, {3}, DType::f32})));
}

TEST(Bf16Elements, PropagateNanAndInfinity) {
  CpuStream stream({.threads = 1});
  const float infinity = std::numeric_limits<float>::infinity();
  const Array<bfloat16> x({3}, {bfloat16(NAN), bfloat16(infinity), bfloat16(-infinity)});
  Array<bfloat16> y({3});
  kernels::unary_forward(stream, kernels::UnaryOp::relu, x.view(), y.view());
  EXPECT_TRUE(std::isnan(testing::value_of(y[0])));
  EXPECT_EQ(testing::value_of(y[1]), infinity);
  EXPECT_EQ(testing::value_of(y[2]), 0);
}

TEST(Bf16Elements, RejectF16) {
  CpuStream stream({.threads = 1});
  const Array<float16> x({3});
  Array<float16> y({3});
  EXPECT_EQ(testing::message_of<UsageError>(
                [&] { kernels::unary_forward(stream, kernels::UnaryOp::relu, x.view(), y.view()); }),
            "the CPU computes in f32, f64 and bf16; found f16");
}

class Dropout : public ::testing::Test {
 protected:
  static constexpr std::int64_t kSample = 7 * 3;  // elements: not a multiple of the four words of a draw
  CpuStream one{{.threads = 1}}, three{{.threads = 3}};
  const Random random{.seed = 11, .purpose = RandomPurpose::dropout, .stream = 2};
};

TEST_F(Dropout, FollowsItsDefinition) {
  const Array<std::int32_t> ids({4}, {5, 0, 1000000, 7});
  const Array<float> x = Array<float>::random({4, 7, 3}, 3);
  for (const double p : {0.0, 0.3, 0.5, 1.0}) {
    Array<float> y({4, 7, 3}), expected({4, 7, 3});
    for (std::size_t i = 0; i < x.size(); ++i) {
      const std::size_t e = i % kSample;
      const auto id = static_cast<std::uint64_t>(ids[i / kSample]);
      const bool dropped = to_uniform(random.words(id, static_cast<std::uint32_t>(e / 4))[e % 4]) < p;
      expected[i] = dropped ? 0.0f : x[i] * static_cast<float>(1 / (1 - p));
    }
    kernels::dropout(three, x.view(), ids.view(), p, random, y.grad());
    testing::expect_same_bits(y, expected);
    kernels::dropout(one, x.view(), ids.view(), p, random, y.grad(GradMode::accumulate));
    for (float& element : expected) element += element;
    testing::expect_same_bits(y, expected);
  }
}

TEST_F(Dropout, DependsOnTheSampleOnly) {
  constexpr std::int64_t kLarge = 10007;
  const Array<double> x({3, kLarge}, 1.0), row({1, kLarge}, 1.0);
  const Array<std::int32_t> ids({3}, {4, 9, 2}), id({1}, {9});
  Array<double> y({3, kLarge}), alone({1, kLarge});
  kernels::dropout(three, x.view(), ids.view(), 0.25, random, y.grad());
  kernels::dropout(one, row.view(), id.view(), 0.25, random, alone.grad());
  std::int64_t kept = 0;
  for (std::size_t e = 0; e < alone.size(); ++e) {
    ASSERT_EQ(y[kLarge + e], alone[e]) << e;
    kept += alone[e] != 0 ? 1 : 0;
  }
  // Five standard deviations of the binomial distribution.
  EXPECT_NEAR(static_cast<double>(kept), 0.75 * kLarge, 5 * std::sqrt(0.75 * 0.25 * kLarge));
}

TEST_F(Dropout, ReadsTheEpochFromMemory) {
  const Array<std::int32_t> ids({4}, {5, 0, 1000000, 7});
  const Array<float> x = Array<float>::random({4, 7, 3}, 3);
  Array<float> y({4, 7, 3}), expected({4, 7, 3});
  kernels::dropout(three, x.view(), ids.view(), 0.3, random, expected.grad());
  const std::int32_t epoch = 2;
  const Random by_cell{.seed = 11, .purpose = RandomPurpose::dropout, .cell = &epoch};
  kernels::dropout(three, x.view(), ids.view(), 0.3, by_cell, y.grad());
  testing::expect_same_bits(y, expected);
}

TEST_F(Dropout, AcceptsEmptyBatch) {
  Array<float> x({0, 5}), y({0, 5});
  const Array<std::int32_t> ids({0});
  kernels::dropout(three, x.view(), ids.view(), 0.5, random, y.grad());
}

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
