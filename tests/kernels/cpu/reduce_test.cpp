// Tests of reductions on the CPU.
#include "convoy/kernels/reduce.h"
#include "convoy/kernels/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

constexpr std::int64_t kSizes[] = {0, 1, 31, 32, 33, 255, 257, 8192, 8193, 100003};

template <class T>
class Reduce : public ::testing::Test {
 protected:
  static constexpr double kEps = std::numeric_limits<T>::epsilon();
  CpuStream one{{.threads = 1}}, three{{.threads = 3}};
};

using ReduceTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Reduce, ReduceTypes);

TYPED_TEST(Reduce, SumMatchesSumInDouble) {
  for (const std::int64_t n : kSizes) {
    SCOPED_TRACE(n);
    const auto x = Array<TypeParam>::random({n}, 1, 3);
    double expected = 0, size = 0;
    for (const TypeParam element : x) {
      expected += element;
      size += std::abs(element);
    }
    Array<TypeParam> y({1}, TypeParam{9}), same({1});
    kernels::sum(this->one, x.view(), y.grad());
    // Sums in double in a different order, then one rounding to the type.
    const double tolerance =
        1e-15 * size * std::sqrt(static_cast<double>(n)) + this->kEps * std::abs(expected);
    ASSERT_NEAR(y[0], expected, tolerance);
    kernels::sum(this->three, x.view(), same.grad());
    testing::expect_same_bits(y, same);
    kernels::sum(this->three, x.view(), same.grad(GradMode::accumulate));
    ASSERT_EQ(same[0], 2 * y[0]);
  }
}

TEST(Sum, RoundsOnceForManyFloats) {
  CpuStream stream({.threads = 3});
  constexpr std::int64_t kMany = 3000000;  // a sum in float would be wrong in the fourth digit
  const Array<float> x({kMany}, 0.1f);
  Array<float> y({1});
  kernels::sum(stream, x.view(), y.grad());
  EXPECT_EQ(y[0], static_cast<float>(static_cast<double>(0.1f) * kMany));
}

TYPED_TEST(Reduce, SumRowsAndAddBias) {
  const Shape shapes[] = {{0, 5},   {1, 1},     {3, 0},     {33, 10},    {257, 31},
                          {64, 33}, {65, 8200}, {5003, 33}, {100003, 1}, {2, 7, 9, 3}};
  for (const Shape& shape : shapes) {
    SCOPED_TRACE(shape.text());
    const std::int64_t columns = shape[-1];
    const auto width = static_cast<std::size_t>(columns);
    const auto x = Array<TypeParam>::random(shape, 2, 1);
    const auto bias = Array<TypeParam>::random({columns}, 3, 2);
    std::vector<double> expected(width);
    for (std::size_t i = 0; i < x.size(); ++i) expected[i % width] += x[i];

    Array<TypeParam> y({columns}, TypeParam{5}), same({columns});
    kernels::sum_rows(this->one, x.view(), y.grad());
    kernels::sum_rows(this->three, x.view(), same.grad());
    testing::expect_same_bits(y, same);
    // Sums of numbers below 1 in double, then one rounding.
    for (std::size_t c = 0; c < width; ++c)
      ASSERT_NEAR(y[c], expected[c],
                  this->kEps * std::abs(expected[c]) + 1e-16 * static_cast<double>(x.size()));
    kernels::sum_rows(this->three, x.view(), same.grad(GradMode::accumulate));
    for (std::size_t c = 0; c < width; ++c) ASSERT_EQ(same[c], 2 * y[c]);

    Array<TypeParam> g(shape), rectified(shape);
    kernels::relu_bias_backward(this->three, x.view(), x.view(), g.view(), y.grad());
    kernels::unary_backward(this->one, kernels::UnaryOp::relu, x.view(), x.view(), rectified.grad());
    kernels::sum_rows(this->one, rectified.view(), same.grad());
    testing::expect_same_bits(g, rectified);
    testing::expect_same_bits(y, same);

    Array<TypeParam> out(shape), in_place = x;
    kernels::add_bias(this->three, x.view(), bias.view(), out.view());
    for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], x[i] + bias[i % width]);
    kernels::add_bias(this->one, in_place.view(), bias.view(), in_place.view());
    testing::expect_same_bits(in_place, out);
  }
}

TYPED_TEST(Reduce, AddBiasWithRelu) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const Array<TypeParam> x({3, 2}, {1, -1, -2, 3, nan, nan}), bias({2}, {0.5, -2});
  Array<TypeParam> y({3, 2});
  kernels::add_bias(this->three, x.view(), bias.view(), y.view(), true);
  for (const std::size_t e : {0u, 1u, 2u, 3u}) EXPECT_EQ(y[e], (Array<TypeParam>({4}, {1.5, 0, 0, 1})[e]));
  EXPECT_TRUE(std::isnan(y[4]) && std::isnan(y[5])) << "NaN must propagate";

  const auto many = Array<TypeParam>::random({5003, 33}, 2, 1);
  const auto many_bias = Array<TypeParam>::random({33}, 3, 2);
  Array<TypeParam> sums(many.shape()), cut = many;
  kernels::add_bias(this->one, many.view(), many_bias.view(), sums.view());
  kernels::add_bias(this->three, cut.view(), many_bias.view(), cut.view(), true);  // in place
  for (std::size_t e = 0; e < cut.size(); ++e) ASSERT_EQ(cut[e], std::max(sums[e], TypeParam{0}));
}

TYPED_TEST(Reduce, BroadcastScalar) {
  const Array<TypeParam> x({1}, {TypeParam{3}});
  for (const std::int64_t n : kSizes) {
    Array<TypeParam> y({n}, TypeParam{1});
    kernels::broadcast_scalar(this->three, x.view(), 0.5, y.grad());
    for (const TypeParam element : y) ASSERT_EQ(element, TypeParam{1.5});
    kernels::broadcast_scalar(this->three, x.view(), -1, y.grad(GradMode::accumulate));
    for (const TypeParam element : y) ASSERT_EQ(element, TypeParam{-1.5});
  }
}

TYPED_TEST(Reduce, GlobalNormCombinesAllTensors) {
  std::vector<Array<TypeParam>> arrays;
  std::vector<ConstView> views;
  double squares = 0;
  for (const std::int64_t n : kSizes)
    arrays.push_back(Array<TypeParam>::random({n}, static_cast<std::uint32_t>(n)));
  for (const auto& array : arrays) {
    views.push_back(array.view());
    squares += testing::dot(array, array);
  }
  Array<double> norm({1}), same({1});
  kernels::global_norm(this->one, views, norm.view());
  kernels::global_norm(this->three, views, same.view());
  testing::expect_same_bits(norm, same);
  EXPECT_NEAR(norm[0], std::sqrt(squares),
              1e-12 * std::sqrt(squares));  // sums in double, in a different order

  kernels::global_norm(this->three, {}, norm.view());
  EXPECT_EQ(norm[0], 0);
  arrays.back()[77] = std::numeric_limits<TypeParam>::infinity();
  kernels::global_norm(this->three, views, norm.view());
  EXPECT_TRUE(std::isinf(norm[0]));
  arrays.back()[99999] = std::numeric_limits<TypeParam>::quiet_NaN();
  kernels::global_norm(this->three, views, norm.view());
  EXPECT_TRUE(std::isnan(norm[0]));
}

TEST(GlobalNorm, DoesNotOverflowOrUnderflow) {
  CpuStream stream({.threads = 1});
  Array<double> norm({1});
  for (const float value : {1e30f, 1e-30f}) {
    const Array<float> x({4}, value);
    const ConstView view = x.view();
    kernels::global_norm(stream, {&view, 1}, norm.view());
    EXPECT_NEAR(norm[0], 2 * static_cast<double>(value), 1e-14 * static_cast<double>(value));
  }
}

template <class T>
class CountNonFinite : public ::testing::Test {};
using FloatingTypes = ::testing::Types<float, double, float16, bfloat16>;
TYPED_TEST_SUITE(CountNonFinite, FloatingTypes);

TYPED_TEST(CountNonFinite, CombinesAllTensors) {
  using T = TypeParam;
  const auto number = [](double value) { return static_cast<T>(static_cast<float>(value)); };
  const double infinity = std::numeric_limits<double>::infinity();
  CpuStream three({.threads = 3});
  std::vector<Array<T>> arrays;
  for (const std::int64_t n : kSizes)
    arrays.push_back(Array<T>::random({n}, static_cast<std::uint32_t>(n), 1));
  const auto count = [&] {
    std::vector<ConstView> views;
    for (const Array<T>& array : arrays) views.push_back(array.view());
    Array<std::int32_t> found({1}, -1);
    kernels::count_non_finite(three, views, found.view());
    return found[0];
  };
  EXPECT_EQ(count(), 0);
  arrays[1][0] = number(infinity);
  arrays.back()[0] = number(-infinity);
  arrays.back()[100002] = number(std::numeric_limits<double>::quiet_NaN());
  arrays.back()[8191] =
      number(dtype_of<T> == DType::f16 ? 65504 : 3e38);  // close to the largest finite number
  EXPECT_EQ(count(), 3);
  for (T& element : arrays.back()) element = number(-infinity);
  EXPECT_EQ(count(), 100004);
  arrays.clear();
  EXPECT_EQ(count(), 0);
}

TYPED_TEST(Reduce, ArgmaxSkipsNanUnlessItComesFirst) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const Array<TypeParam> x({3, 3}, {nan, 1, 2, 1, nan, 2, 1, nan, nan});
  Array<std::int32_t> indices({3});
  kernels::argmax(this->three, x.view(), indices.view());
  testing::expect_same_bits(indices, Array<std::int32_t>({3}, {0, 2, 0}));
}

TYPED_TEST(Reduce, ArgmaxIsTheFirstLargest) {
  const Array<TypeParam> x({4, 3}, {1, 3, 2, 5, 5, 5, -3, -2, -1, 0, -1, 0});
  Array<std::int32_t> indices({4});
  kernels::argmax(this->three, x.view(), indices.view());
  testing::expect_same_bits(indices, Array<std::int32_t>({4}, {1, 0, 2, 0}));

  const auto many = Array<TypeParam>::random({10007, 11}, 4);
  Array<std::int32_t> found({10007}), same({10007}), empty({0});
  kernels::argmax(this->one, many.view(), found.view());
  kernels::argmax(this->three, many.view(), same.view());
  testing::expect_same_bits(found, same);
  for (std::size_t row = 0; row < found.size(); ++row)
    for (std::size_t c = 0; c < 11; ++c)
      ASSERT_LE(many[row * 11 + c], many[row * 11 + static_cast<std::size_t>(found[row])]);
  kernels::argmax(this->three, Array<TypeParam>({0, 11}).view(), empty.view());
}

}  // namespace
}  // namespace convoy
