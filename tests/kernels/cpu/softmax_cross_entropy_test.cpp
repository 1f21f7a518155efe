// Tests of softmax and cross-entropy on the CPU, compared with PyTorch.
#include "convoy/kernels/softmax_cross_entropy.h"
#include "convoy/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>

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
        log_sum_exp({logits.shape()[0]}),
        gradient(logits.shape()),
        correct({logits.shape()[0]}),
        total({1}),
        correct_count({1}) {
    CpuStream stream({.threads = threads});
    const Array<T> scale({1}, {dloss});
    const CrossEntropyOptions options{.smoothing = smoothing, .scale = loss_scale};
    kernels::softmax_cross_entropy_forward(stream, logits.view(), labels.view(), options, losses.view(),
                                           log_sum_exp.view(), correct.view(), total.view(),
                                           correct_count.view());
    kernels::softmax_cross_entropy_backward(stream, scale.view(), logits.view(), labels.view(),
                                            log_sum_exp.view(), options, gradient.grad());
  }
};

template <class T>
class CrossEntropy : public ::testing::Test {
 protected:
  static constexpr double kEps = std::numeric_limits<T>::epsilon();
};
using CrossEntropyTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(CrossEntropy, CrossEntropyTypes);

// Results of torch.nn.functional.cross_entropy(reduction="none", label_smoothing=s) of PyTorch 2.15 in
// double. The gradients are those of half the sum of the losses.
TYPED_TEST(CrossEntropy, MatchesPyTorch) {
  const Array<TypeParam> logits({3, 4}, {1, -0.5, 2, 0.25, 3, 3, -1, 0, -2, 0.5, 0.5, 1.5});
  const Array<std::int32_t> labels({3}, {2, 1, 0});
  const double tolerance = 4 * this->kEps * 4;  // a few roundings of numbers up to 4

  const Result<TypeParam> plain(1, logits, labels, 0, TypeParam{0.5});
  testing::expect_near(plain.losses,
                       Array<double>({3}, {0.4847311347019678, 0.726631620430614, 4.068692337302756}),
                       tolerance);
  testing::expect_near(plain.log_sum_exp,
                       Array<double>({3}, {2.484731134701968, 3.726631620430614, 2.068692337302756}),
                       tolerance);
  testing::expect_near(plain.gradient,
                       Array<double>({3, 4}, {0.1132816237416481, 0.025276546847348112, -0.19206862068474317,
                                              0.05351045009574701, 0.2417674897119908, -0.2582325102880092,
                                              0.004428126036600581, 0.012036894539417732, -0.49145013271061,
                                              0.10415870661781003, 0.10415870661781003, 0.28313271947498986}),
                       tolerance);
  // The second row's label ties with an earlier class; the first of equal logits is the prediction.
  testing::expect_same_bits(plain.correct, Array<std::int32_t>({3}, {1, 0, 0}));
  EXPECT_EQ(plain.correct_count[0], 1);

  const Result<TypeParam> smoothed(1, logits, labels, 0.1, TypeParam{0.5});
  testing::expect_near(smoothed.losses,
                       Array<double>({3}, {0.6159811347019678, 0.9016316204306141, 3.856192337302756}),
                       tolerance);
  testing::expect_near(smoothed.gradient,
                       Array<double>({3, 4}, {0.1007816237416481, 0.012776546847348112, -0.1545686206847432,
                                              0.04101045009574701, 0.2292674897119908, -0.22073251028800922,
                                              -0.00807187396339942, -0.0004631054605822686, -0.45395013271061,
                                              0.09165870661781003, 0.09165870661781003, 0.27063271947498985}),
                       tolerance);
}

TYPED_TEST(CrossEntropy, SoftmaxMatchesPyTorch) {
  Array<TypeParam> x({3, 4}, {1, -0.5, 2, 0.25, 3, 3, -1, 0, -2, 0.5, 0.5, 1.5});
  CpuStream stream({.threads = 1});
  kernels::softmax(stream, x.view(), x.view());
  testing::expect_near(x,
                       Array<double>({3, 4}, {0.22656324748329623, 0.05055309369469623, 0.6158627586305137,
                                              0.107020900191494, 0.48353497942398166, 0.48353497942398166,
                                              0.008856252073201159, 0.02407378907883546, 0.01709973457878003,
                                              0.20831741323562009, 0.20831741323562009, 0.5662654389499798}),
                       4 * this->kEps);
}

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

TYPED_TEST(CrossEntropy, PropagatesNan) {
  const Array<TypeParam> logits({1, 3}, {0, std::numeric_limits<TypeParam>::quiet_NaN(), 1});
  EXPECT_TRUE(std::isnan(Result<TypeParam>(1, logits, Array<std::int32_t>({1}, {2}), 0, 1).losses[0]));
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

TYPED_TEST(CrossEntropy, AccumulatesGradient) {
  const auto logits = Array<TypeParam>::random({7, 5}, 6);
  const Array<std::int32_t> labels({7}, {0, 1, 2, 3, 4, 0, 4});
  Result<TypeParam> result(1, logits, labels, 0.1, 2);
  const Array<TypeParam> once = result.gradient, scale({1}, {2});
  CpuStream stream({.threads = 1});
  kernels::softmax_cross_entropy_backward(stream, scale.view(), logits.view(), labels.view(),
                                          result.log_sum_exp.view(), {.smoothing = 0.1},
                                          result.gradient.grad(GradMode::accumulate));
  for (std::size_t i = 0; i < once.size(); ++i) ASSERT_EQ(result.gradient[i], 2 * once[i]);
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

}  // namespace
}  // namespace convoy
