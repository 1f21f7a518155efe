// Tests of ties, NaN, padding and threads of pooling on the CPU. Values are tested by the op cases.
#include "convoy/kernels/pool2d.h"

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;
using testing::expect_near;
using testing::expect_same_bits;

/// The results of one step on images of 28 x 28 pixels, whose channels do not fill a vector.
struct Pooled {
  Array<float> maximum{{5, 14, 14, 6}}, mean{{5, 14, 14, 6}}, from_max{{5, 28, 28, 6}},
      from_mean{{5, 28, 28, 6}};
  Array<float> global_mean{{5, 6}}, from_global{{5, 28, 28, 6}};
  Array<std::uint8_t> taps{{5, 14, 14, 6}};

  explicit Pooled(int threads) {
    CpuStream stream({.threads = threads});
    const auto x = Array<float>::random({5, 28, 28, 6}, 1);
    const Pool2dOptions options{.kernel = 3, .stride = 2, .padding = 1};
    kernels::max_pool2d_forward(stream, x.view(), maximum.view(), taps.view(), options);
    kernels::max_pool2d_backward(stream, maximum.view(), taps.view(), from_max.grad(), options);
    kernels::avg_pool2d_forward(stream, x.view(), mean.view(), options);
    kernels::avg_pool2d_backward(stream, mean.view(), from_mean.grad(), options);
    kernels::global_avg_pool2d_forward(stream, x.view(), global_mean.view());
    kernels::global_avg_pool2d_backward(stream, global_mean.view(), from_global.grad());
  }
};

TEST(Pooling, GivesTheSameBitsForEveryNumberOfThreads) {
  const Pooled one(1), three(3);
  for (const auto member : {&Pooled::maximum, &Pooled::mean, &Pooled::from_max, &Pooled::from_mean,
                            &Pooled::global_mean, &Pooled::from_global})
    expect_same_bits(one.*member, three.*member);
  expect_same_bits(one.taps, three.taps);
}

TEST(MaxPool, FirstOfEqualsAndFirstNanWin) {
  CpuStream stream({.threads = 1});
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float low = -std::numeric_limits<float>::infinity();
  // Four windows of four pixels: ties; one NaN; two NaNs; minus infinity only.
  const Array<float> x({1, 2, 8, 1}, {5, 1, 7, nan, 1, nan, low, low,  //
                                      5, 5, 8, 9, nan, 3, low, low});
  Array<float> y({1, 1, 4, 1});
  Array<std::uint8_t> taps({1, 1, 4, 1});
  kernels::max_pool2d_forward(stream, x.view(), y.view(), taps.view(), {});
  EXPECT_EQ(y[0], 5);
  EXPECT_TRUE(std::isnan(y[1]));
  EXPECT_TRUE(std::isnan(y[2]));
  EXPECT_EQ(y[3], low);
  expect_same_bits(taps, Array<std::uint8_t>({1, 1, 4, 1}, {0, 1, 1, 0}));
}

TEST(AveragePool, PaddingCountsAsZeros) {
  CpuStream stream({.threads = 1});
  const Array<float> x({1, 2, 2, 1}, 9);
  Array<float> y({1, 2, 2, 1});
  kernels::avg_pool2d_forward(stream, x.view(), y.view(), {.kernel = 3, .stride = 1, .padding = 1});
  expect_near(y, Array<float>({1, 2, 2, 1}, 4), 0);  // each window has four nines and five zeros
}

}  // namespace
}  // namespace convoy
