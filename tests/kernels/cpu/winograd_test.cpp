// Tests of the Winograd convolution.
#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <vector>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/cpu/winograd/conv2d.h"
#include "tests/kernels/conv2d_comparison.h"
#include "tests/testing/support/errors.h"

namespace convoy {
namespace {

using testing::Array;
using testing::ConvArrays;
using testing::ConvCase;
using testing::expect_same_bits;

ConvCase case_of(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t o,
                 int padding) {
  return {n, h, w, i, o, 3, 3, 1, padding};
}

ConvCase strided(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t i, std::int64_t o) {
  return {n, h, w, i, o, 3, 3, 2, 1};
}

// Channels: one vector, several, and numbers that fill neither a panel of the GEMM nor a block of its depth.
// Sizes: whole tiles, tiles that overhang by one to three pixels, and images smaller than a tile.
const std::vector<ConvCase> kWinogradCases = {
    case_of(2, 8, 8, 16, 16, 1), case_of(1, 4, 4, 32, 48, 1), case_of(3, 7, 5, 48, 16, 1),
    case_of(1, 9, 10, 16, 80, 0), case_of(2, 3, 3, 16, 32, 1), case_of(1, 2, 1, 32, 16, 2),
    case_of(2, 6, 11, 80, 96, 2), case_of(1, 12, 13, 144, 64, 1), case_of(40, 5, 5, 16, 16, 1),
    // With stride 2, tiles have 8x8 inputs, and even and odd sizes end differently.
    strided(2, 8, 8, 16, 16), strided(1, 16, 8, 32, 48), strided(3, 7, 9, 48, 16), strided(1, 6, 5, 16, 80),
    strided(2, 1, 2, 16, 32), strided(2, 11, 14, 80, 96), strided(1, 15, 13, 144, 64),
    strided(40, 10, 10, 16, 16)};

/// Errors relative to those of direct sums (conv2d_comparison.h). The terms are |B^T d| |G g|, combined by
/// A^T. The worst output of an axis is the last one. The root of the sum of squares of its terms is sqrt(2
/// 0.70^2 + 2 2.36^2 + 3.04^2) = 4.6, and the three terms of the definition have sqrt(3). The ratio is 2.7
/// for one axis and 7.1 for two axes. With stride 2, the ratio is 2.6 for the worst output of the outer taps,
/// and the term of the middle tap is unchanged.
constexpr double kRounding = 7.1;

constexpr testing::ConvAlgorithm kWinograd{kernels::winograd::forward, kernels::winograd::backward_data,
                                           kernels::winograd::backward_filter};

TEST(Winograd, EqualsTheReference) { testing::compare_with_reference(kWinograd, kRounding, kWinogradCases); }

// Counts pixels with small integers: the coefficients of the transforms are rounded, but the results are much
// closer to the correct integer than to the next one.
TEST(Winograd, CountsPixelsExactly) {
  CpuStream stream({.threads = 1});
  const ConvCase c = case_of(1, 5, 6, 16, 16, 1);
  const Array<float> x(c.x(), 1), filter(c.filter(), 1);
  Array<float> y(c.y());
  kernels::winograd::forward(stream, x.view(), filter.view(), ConstView(), y.view(), c.options());
  for (std::int64_t row = 0; row < 5; ++row)
    for (std::int64_t column = 0; column < 6; ++column) {
      const int rows = row == 0 || row == 4 ? 2 : 3, columns = column == 0 || column == 5 ? 2 : 3;
      EXPECT_NEAR(y[static_cast<std::size_t>((row * 6 + column) * 16 + 5)], 16 * rows * columns, 1e-3);
    }
}

TEST(Winograd, BitsDoNotDependOnThreads) {
  testing::expect_bits_of_any_threads<float>(kWinograd, case_of(23, 9, 9, 80, 48, 1));
  testing::expect_bits_of_any_threads<float>(kWinograd, strided(23, 18, 17, 80, 48));
}

TEST(Winograd, ReluPropagatesNan) {
  CpuStream stream({.threads = 1});
  const ConvCase c = case_of(1, 4, 4, 16, 16, 1);
  Array<float> x(c.x(), 1);
  const Array<float> filter(c.filter(), -1);
  x[0] = std::numeric_limits<float>::quiet_NaN();
  Array<float> y(c.y());
  kernels::winograd::forward(stream, x.view(), filter.view(), ConstView(), y.view(),
                             {.stride = 1, .padding = 1, .relu = true});
  EXPECT_TRUE(std::isnan(y[0]));
}

TEST(Winograd, PaysForResNetBodies) {
  const auto pays = [](const ConvCase& c) {
    return kernels::winograd::pays({c.x(), c.filter(), c.y(), c.options()});
  };
  for (const std::int64_t size : {32, 16, 8, 4}) EXPECT_TRUE(pays(case_of(128, size, size, 64, 64, 1)));
  EXPECT_TRUE(pays(case_of(8, 7, 7, 512, 512, 1)));
  EXPECT_TRUE(pays(case_of(4, 3, 3, 256, 256, 1)));  // 36 multiplications instead of 81
  EXPECT_FALSE(pays(case_of(4, 2, 2, 256, 256, 1))) << "36 multiplications instead of 36";
  EXPECT_FALSE(pays(case_of(128, 32, 32, 3, 64, 1))) << "a stem";
  EXPECT_FALSE(pays(case_of(8, 32, 32, 20, 64, 1))) << "not whole vectors of 8 or 16";
  for (const std::int64_t size : {32, 16, 8}) EXPECT_TRUE(pays(strided(128, size, size, 64, 128)));
  EXPECT_TRUE(pays(strided(8, 56, 56, 128, 128)));
  EXPECT_FALSE(pays(strided(8, 14, 14, 512, 512))) << "324 multiplications instead of 441";
  EXPECT_FALSE(pays({8, 32, 32, 64, 64, 3, 3, 2, 0})) << "stride 2 requires a padding of 1";
  EXPECT_FALSE(pays({8, 32, 32, 64, 64, 3, 3, 3, 1})) << "a larger stride";
  EXPECT_FALSE(pays({8, 32, 32, 64, 64, 1, 1, 1, 0})) << "other filters";
  EXPECT_FALSE(pays({8, 32, 32, 64, 64, 5, 5, 1, 2})) << "other filters";
  EXPECT_FALSE(pays(case_of(8, 32, 32, 64, 64, 3))) << "padding of 3: a border of outputs reads zeros only";
}

TEST(Winograd, IsUsedByConv2dUnlessDisabledByEnvironment) {
  const ConvCase c = case_of(2, 8, 8, 16, 16, 1);
  const ConvArrays<float> in(c);
  CpuStream fast({.threads = 1});
  CpuStream direct({.threads = 1});
  Array<float> by_winograd(c.y()), by_default(c.y()), without(c.y());
  kernels::winograd::forward(fast, in.x.view(), in.filter.view(), ConstView(), by_winograd.view(),
                             c.options());
  kernels::conv2d_forward(fast, in.x.view(), in.filter.view(), ConstView(), by_default.view(), c.options());
  {
    const testing::DirectConvolutions switched_off;
    kernels::conv2d_forward(direct, in.x.view(), in.filter.view(), ConstView(), without.view(), c.options());
  }
  expect_same_bits(by_winograd, by_default);
  bool differs = false;
  for (std::size_t k = 0; k < 2 * 8 * 8 * 16; ++k) differs = differs || without[k] != by_default[k];
  EXPECT_TRUE(differs) << "the two algorithms should round differently";

  const testing::DirectConvolutions misspelt("of");
  CpuStream other({.threads = 1});
  EXPECT_THAT(testing::message_of<UsageError>([&] {
                kernels::conv2d_forward(other, in.x.view(), in.filter.view(), ConstView(), without.view(),
                                        c.options());
              }),
              ::testing::HasSubstr("CONVOY_WINOGRAD: found 'of', expected on or off"));
}

}  // namespace
}  // namespace convoy
