// Tests of the convolution of images with few channels.
#include "convoy/kernels/cpu/few_channels/conv2d.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "tests/kernels/conv2d_comparison.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ConvArrays;
using testing::ConvCase;
using testing::expect_same_bits;

/// All sizes that the algorithm supports, also those for which it is not the fastest.
std::vector<ConvCase> cases() {
  std::vector<ConvCase> cases;
  for (const ConvCase& c : testing::kConvCases)
    if (c.groups == 1 && c.stride == 1 && c.dilation == 1 && c.padding.height == c.padding.width &&
        c.padding.height < std::min(c.kh, c.kw))
      cases.push_back(c);
  const ConvCase more[] = {
      {5, 32, 32, 3, 6, 5, 5, 1, 0},   // the layers of LeNet on CIFAR-10
      {5, 14, 14, 6, 16, 5, 5, 1, 0},  //
      {33, 12, 12, 1, 6, 5, 5, 1, 2},  // more images than arrays of sums
      {2, 60, 50, 7, 20, 3, 3, 1, 1},  // several bands of rows in an image
      {1, 90, 31, 4, 31, 3, 5, 1, 2},  // bands with windows that are not square
      {2, 5, 6, 9, 17, 4, 2, 1, 1},    // even windows
      {1, 1, 40, 5, 12, 1, 3, 1, 0},   // one row
      {1, 40, 1, 5, 12, 3, 1, 1, 0},   // one column
      {3, 2, 2, 32, 32, 3, 3, 1, 2},   // images smaller than the window
  };
  cases.insert(cases.end(), std::begin(more), std::end(more));
  return cases;
}

constexpr testing::ConvAlgorithm kFewChannels{kernels::few_channels::forward,
                                              kernels::few_channels::backward_data,
                                              kernels::few_channels::backward_filter};

TEST(FewChannels, EqualsTheReference) {
  ASSERT_GT(cases().size(), 15u);
  testing::compare_with_reference(kFewChannels, 1, cases());
}

TEST(FewChannels, BitsDoNotDependOnThreads) {
  testing::expect_bits_of_any_threads<float>(kFewChannels, {37, 14, 14, 6, 16, 5, 5, 1, 0});
  testing::expect_bits_of_any_threads<float>(kFewChannels, {2, 60, 50, 7, 20, 3, 3, 1, 1});
}

TEST(FewChannels, ReluPropagatesNan) {
  CpuStream stream({.threads = 1});
  const ConvCase c{1, 4, 4, 2, 3, 3, 3, 1, 1};
  Array<float> x(c.x(), 1);
  const Array<float> filter(c.filter(), -1);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  Array<float> y(c.y());
  Conv2dOptions options = c.options();
  options.relu = true;
  kernels::few_channels::forward(stream, x.view(), filter.view(), ConstView(), y.view(), options);
  EXPECT_TRUE(std::isnan(y[0]));
  EXPECT_EQ(y[3 * 4 * 4 - 1], 0) << "-8, whose window does not contain the NaN";
}

TEST(FewChannels, PaysForLayersWithoutFullVectors) {
  const auto pays = [](const ConvCase& c) {
    return kernels::few_channels::pays({c.x(), c.filter(), c.y(), c.options()});
  };
  EXPECT_TRUE(pays({128, 32, 32, 3, 6, 5, 5, 1, 0})) << "the first layer of LeNet";
  EXPECT_TRUE(pays({128, 14, 14, 6, 16, 5, 5, 1, 0})) << "its second layer";
  EXPECT_FALSE(pays({128, 32, 32, 3, 6, 5, 5, 2, 0})) << "stride 2";
  EXPECT_FALSE(pays({128, 32, 32, 16, 16, 3, 3, 1, 1, 16})) << "groups";
  EXPECT_FALSE(pays({128, 32, 32, 9, 16, 5, 5, 1, 2})) << "more input channels";
  EXPECT_FALSE(pays({128, 32, 32, 3, 17, 5, 5, 1, 2})) << "more output channels";
  EXPECT_FALSE(pays({128, 32, 32, 3, 6, 3, 3, 1, 1})) << "a small window";
  EXPECT_FALSE(pays({8, 32, 32, 3, 6, 5, 5, 1, 5})) << "padding of 5: a border of outputs reads zeros only";
}

// The gradient of the filter shows it: oneDNN divides its sums differently, but its outputs have the same bits here.
TEST(FewChannels, IsUsedByConv2d) {
  const ConvCase c{37, 14, 14, 6, 16, 5, 5, 1, 0};
  const ConvArrays<float> in(c);
  CpuStream stream({.threads = 1});
  Array<float> expected(c.filter()), found(c.filter());
  kernels::few_channels::backward_filter(stream, in.dy.view(), in.x.view(), expected.grad(), c.options());
  kernels::conv2d_backward_filter(stream, in.dy.view(), in.x.view(), found.grad(), c.options());
  expect_same_bits(expected, found);
}

}  // namespace
}  // namespace convoy
