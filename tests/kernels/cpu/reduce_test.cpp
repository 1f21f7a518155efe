// Tests of reductions and of cross-entropy on the CPU. The op cases test the values.
#include "convoy/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"
#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

/// The outputs of one forward and one backward.
template <class T>
struct Result {
  Array<T> losses, log_sum_exp, gradient;
  Array<std::int32_t> correct;
  Array<T> total, correct_count;

  Result(int threads, const Array<T>& logits, const Array<std::int32_t>& labels, double smoothing, T dloss,
         double loss_scale = 1)
      : losses({logits.shape()[0]}),
        log_sum_exp({logits.shape()[0], 2}),
        gradient(logits.shape()),
        correct({logits.shape()[0]}),
        total({1}),
        correct_count({1}) {
    CpuStream stream({.threads = threads});
    const Array<T> scale({1}, {dloss});
    const kernels::CrossEntropyTarget target{
        .of_rows = labels.view(), .smoothing = smoothing, .scale = loss_scale};
    kernels::softmax_cross_entropy_forward(stream, logits.view(), target, losses.view(), log_sum_exp.view(),
                                           correct.view(), total.view(), correct_count.view());
    kernels::softmax_cross_entropy_backward(stream, scale.view(), logits.view(), target, log_sum_exp.view(),
                                            gradient.grad());
  }
};

template <class T>
class CrossEntropy : public ::testing::Test {
 protected:
  static constexpr double kEps = std::numeric_limits<T>::epsilon();
};
using CrossEntropyTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CrossEntropy, CrossEntropyTypes);

TYPED_TEST(CrossEntropy, IsStableForLargeLogits) {
  // The shifts are exactly representable, so the losses must not change.
  Array<TypeParam> small({2, 3}, {0, 1, 2, 5, -3, 0}), large = small;
  for (TypeParam& x : large) x += 4096;
  const Array<std::int32_t> labels({2}, {1, 0});
  for (const double smoothing : {0.0, 0.2})
    testing::expect_same_bits(Result<TypeParam>(1, small, labels, smoothing, 1).losses,
                              Result<TypeParam>(1, large, labels, smoothing, 1).losses);

  const Array<TypeParam> extreme({2, 2}, {1000, -1000, 1000, -1000});
  const Result<TypeParam> result(1, extreme, Array<std::int32_t>({2}, {0, 1}), 0, TypeParam{1});
  testing::expect_same_bits(result.losses, Array<TypeParam>({2}, {0, 2000}));
  testing::expect_same_bits(result.gradient, Array<TypeParam>({2, 2}, {0, 0, 1, -1}));
}

TYPED_TEST(CrossEntropy, RowsAreIndependentOfThreads) {
  for (const Shape& shape : {Shape{0, 10}, Shape{1, 1}, Shape{33, 1000}, Shape{10007, 10}}) {
    SCOPED_TRACE(shape.text());
    const auto logits = Array<TypeParam>::random(shape, 5, 1);
    Array<std::int32_t> labels({shape[0]});
    for (std::size_t row = 0; row < labels.size(); ++row)
      labels[row] = static_cast<std::int32_t>(row % shape[1]);
    const Result<TypeParam> one(1, logits, labels, 0.1, 2), three(3, logits, labels, 0.1, 2);
    testing::expect_same_bits(one.losses, three.losses);
    testing::expect_same_bits(one.gradient, three.gradient);
    testing::expect_same_bits(one.correct, three.correct);
    testing::expect_same_bits(one.correct_count, three.correct_count);
  }
}

TYPED_TEST(CrossEntropy, ScalesTotalAndGradient) {
  const auto logits = Array<TypeParam>::random({7, 5}, 6);
  const Array<std::int32_t> labels({7}, {0, 1, 2, 3, 4, 0, 4});
  const Result<TypeParam> sum(1, logits, labels, 0.1, 2), mean(1, logits, labels, 0.1, 2, 1.0 / 7);
  double total = 0;
  for (const TypeParam loss : sum.losses) total += loss;
  EXPECT_NEAR(sum.total[0], total, this->kEps * total);
  EXPECT_EQ(mean.total[0], static_cast<TypeParam>(1.0 / 7) * sum.total[0]);
  testing::expect_same_bits(mean.losses, sum.losses);
  const auto scaled = static_cast<TypeParam>(1.0 / 7) * TypeParam{2};
  const Result<TypeParam> by_dloss(1, logits, labels, 0.1, scaled);
  testing::expect_same_bits(mean.gradient, by_dloss.gradient);
  const Result<TypeParam> none(1, Array<TypeParam>({0, 5}), Array<std::int32_t>({0}), 0, 1);
  EXPECT_EQ(none.total[0], 0);
  EXPECT_EQ(none.correct_count[0], 0);
}

constexpr std::int64_t kSizes[] = {0, 1, 31, 32, 33, 255, 257, 8192, 8193, 100003};

template <class T>
class Reduce : public ::testing::Test {
 protected:
  CpuStream one{{.threads = 1}}, three{{.threads = 3}};
};

using ReduceTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(Reduce, ReduceTypes);

// The op cases test the values.
TYPED_TEST(Reduce, BitsDoNotDependOnThreads) {
  for (const Shape& shape : {Shape{0, 5}, {3, 0}, {65, 8200}, {5003, 33}, {100003, 1}, {2, 7, 9, 3}}) {
    SCOPED_TRACE(shape.text());
    const Shape columns{shape[-1]};
    const auto x = Array<TypeParam>::random(shape, 2, 1);
    const auto bias = Array<TypeParam>::random(columns, 3, 2);
    const auto results = [&](CpuStream& stream) {
      std::vector<Array<TypeParam>> out;
      for (const Shape& of : {Shape{1}, columns, columns, shape, shape}) out.emplace_back(of, TypeParam{9});
      kernels::sum(stream, x.view(), out[0].grad());
      kernels::sum_rows(stream, x.view(), out[1].grad());
      kernels::relu_bias_backward(stream, x.view(), x.view(), out[3].view(), out[2].grad());
      kernels::add_bias(stream, x.view(), bias.view(), out[4].view());
      return out;
    };
    const auto one = results(this->one), three = results(this->three);
    for (std::size_t i = 0; i < one.size(); ++i) testing::expect_same_bits(one[i], three[i]);
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

TYPED_TEST(Reduce, MaximumOfAnAxisIsTheFirstNanOrTheFirstLargest) {
  const TypeParam nan = std::numeric_limits<TypeParam>::quiet_NaN();
  const Array<TypeParam> x({7, 3, 1},
                           {nan, 1, 2, 1, nan, 2, 1, nan, nan, 1, 3, 2, 5, 5, 5, -3, -2, -1, 0, -1, 0});
  Array<TypeParam> largest({7, 1});
  Array<std::int32_t> indices({7, 1});
  kernels::max_axis(this->three, x.view(), largest.view(), indices.view());
  testing::expect_same_bits(indices, Array<std::int32_t>({7, 1}, {0, 1, 1, 1, 0, 2, 0}));

  const auto many = Array<TypeParam>::random({10007, 11, 1}, 4);
  Array<TypeParam> values({10007, 1});
  Array<std::int32_t> found({10007, 1}), same({10007, 1});
  kernels::max_axis(this->one, many.view(), values.view(), found.view());
  kernels::max_axis(this->three, many.view(), values.view(), same.view());
  testing::expect_same_bits(found, same);
  for (std::size_t row = 0; row < found.size(); ++row)
    for (std::size_t c = 0; c < 11; ++c) {
      ASSERT_LE(many[row * 11 + c], many[row * 11 + static_cast<std::size_t>(found[row])]);
      ASSERT_LE(many[row * 11 + c], values[row]);
    }
}

}  // namespace
}  // namespace convoy
