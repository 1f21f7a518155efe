// Tests of normal and uniform initial values, and of the functions of the Box-Muller transform.
#include "convoy/kernels/initial_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>
#include <random>
#include <vector>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/cpu/primitives/box_muller.h"
#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

constexpr Random kRandom{.seed = 3, .purpose = RandomPurpose::initialization};
constexpr std::uint32_t kKey = 0x89abcdef;

using Draw = void (*)(CpuStream&, const Random&, std::uint32_t, double, View);
constexpr Draw kDraws[] = {kernels::draw_normal, kernels::draw_uniform};

/// Returns a uniform number in [0, 1) with 53 random bits.
double uniform53(std::mt19937_64& words) { return static_cast<double>(words() >> 11) * 0x1p-53; }

void check_log(double w) {
  const long double expected = std::log(static_cast<long double>(w));
  const double last_place =
      expected == 0 ? 0 : std::ldexp(1.0, std::ilogb(static_cast<double>(expected)) - 52);
  ASSERT_LE(std::abs(kernels::box_muller::log(w) - expected), 2.1L * last_place) << w;
}

TEST(BoxMuller, LogarithmStaysWithinItsErrorBound) {
  std::mt19937_64 words(1);
  check_log(1);
  check_log(0x1p-1000);
  for (int i = 0; i < 1000000; ++i) check_log(1 - uniform53(words));
  for (int binade = 1; binade <= 1000; ++binade)
    for (int i = 0; i < 200; ++i) check_log(std::ldexp(1 + uniform53(words), -binade));
  for (int exponent = -53; exponent < -1; ++exponent)  // close to 1, where the logarithm is small
    for (int i = 0; i < 200; ++i) check_log(1 - std::ldexp(1 + uniform53(words), exponent));
}

void check_direction(double turns) {
  const long double angle = 2 * std::numbers::pi_v<long double> * static_cast<long double>(turns);
  const auto [cosine, sine] = kernels::box_muller::cosine_and_sine(turns);
  ASSERT_LE(std::abs(cosine - std::cos(angle)), 0x1p-52L) << turns;
  ASSERT_LE(std::abs(sine - std::sin(angle)), 0x1p-52L) << turns;
}

TEST(BoxMuller, CosineAndSineStayWithinTheirErrorBound) {
  std::mt19937_64 words(2);
  for (int i = 0; i < 1000000; ++i) check_direction(uniform53(words));
  for (int eighth = 0; eighth <= 8; ++eighth)  // at the quarters, and where the nearest quarter changes
    for (int i = -1000; i <= 1000; ++i) {
      const double turns = eighth / 8.0 + i * 0x1p-53;
      if (turns >= 0 && turns < 1) check_direction(turns);
    }
}

// The C library's results in double round to the same float, except close to a rounding boundary, where they
// round to an adjacent float.
TEST(InitialValues, MatchTheFormulas) {
  constexpr std::int64_t kCount = 200001;
  constexpr double kScale = 0.03125;
  Array<float> normal({kCount}), uniform({kCount});
  CpuStream stream;
  kernels::draw_normal(stream, kRandom, kKey, kScale, normal.view());
  kernels::draw_uniform(stream, kRandom, kKey, kScale, uniform.view());
  int differing = 0;
  for (std::size_t j = 0; j < kCount; ++j) {
    const std::array<std::uint32_t, 4> words = kRandom.words(j / 2, kKey);
    const double u = to_uniform53(words[0], words[1]), v = to_uniform53(words[2], words[3]);
    const double radius = std::sqrt(-2 * std::log1p(-u)), angle = 2 * std::numbers::pi * v;
    const auto expected =
        static_cast<float>(kScale * radius * (j % 2 == 0 ? std::cos(angle) : std::sin(angle)));
    if (normal[j] != expected) ++differing;
    // Near a zero of cosine or sine, an error of 2^-52 is many ulp.
    ASSERT_NEAR(normal[j], expected, std::abs(expected) * 0x1p-23 + kScale * 9 * 0x1p-50) << j;
    ASSERT_EQ(uniform[j], static_cast<float>(kScale * (2 * (j % 2 == 0 ? u : v) - 1))) << j;
  }
  EXPECT_LE(differing, 2);
}

// Initial values must have the same bits on every processor and with every compiler.
TEST(InitialValues, HaveExpectedBits) {
  Array<double> values({6});
  CpuStream stream;
  kernels::draw_normal(stream, kRandom, kKey, 1, values.view());
  const std::vector<double> expected = {0x1.fd569a39302p+0,    0x1.c8d9c021f6541p+0,  -0x1.934d9f1766b9dp+0,
                                        -0x1.5969bd7e0fe2bp-1, -0x1.6229be89e5ffbp+0, -0x1.550b991873063p+0};
  EXPECT_EQ(std::vector<double>(values.begin(), values.end()), expected);
}

TEST(InitialValues, DoNotDependOnThreadsAndStayInBounds) {
  for (const Draw draw : kDraws)
    for (const std::int64_t count : {0, 1, 2, 511, 512, 513, 20000, 20001}) {
      SCOPED_TRACE(count);
      Array<float> one({count}), several({count});
      CpuStream single({.threads = 1}), three({.threads = 3});
      draw(single, kRandom, kKey, 0.5, one.view());
      draw(three, kRandom, kKey, 0.5, several.view());
      EXPECT_TRUE(std::equal(one.begin(), one.end(), several.begin()));
      Array<double> wide({count});
      draw(three, kRandom, kKey, 0.5, wide.view());
      for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j)
        ASSERT_EQ(static_cast<float>(wide[j]), one[j]) << "rounded once, " << j;
    }
}

TEST(InitialValues, AreNormalAndUniform) {
  constexpr std::int64_t kCount = 1 << 20;
  CpuStream stream;
  Array<double> values({kCount});
  const auto moment = [&](int power) {
    double sum = 0;
    for (const double x : values) sum += std::pow(x, power);
    return sum / kCount;
  };
  const auto within = [](double found, double expected, double variance) {  // five standard errors
    EXPECT_NEAR(found, expected, 5 * std::sqrt(variance / kCount));
  };
  kernels::draw_normal(stream, kRandom, kKey, 1, values.view());
  within(moment(1), 0, 1);
  within(moment(2), 1, 2);
  within(moment(3), 0, 15);
  within(moment(4), 3, 96);
  double both = 0;  // cosine and sine of one pair must be uncorrelated
  for (std::size_t j = 0; j < kCount; j += 2) both += values[j] * values[j + 1] / (kCount / 2.0);
  EXPECT_NEAR(both, 0, 5 * std::sqrt(2.0 / kCount));
  const auto beyond = static_cast<double>(
      std::count_if(values.begin(), values.end(), [](double x) { return std::abs(x) > 3; }));
  const double share = std::erfc(3 / std::numbers::sqrt2);
  within(beyond / kCount, share, share);
  kernels::draw_uniform(stream, kRandom, kKey, 1, values.view());
  within(moment(1), 0, 1.0 / 3);
  within(moment(2), 1.0 / 3, 4.0 / 45);
  EXPECT_GE(*std::min_element(values.begin(), values.end()), -1);
  EXPECT_LT(*std::max_element(values.begin(), values.end()), 1);
}

TEST(InitialValues, RejectOtherTypes) {
  CpuStream stream;
  Array<std::int32_t> whole({4});
  for (const Draw draw : kDraws) EXPECT_THROW(draw(stream, kRandom, kKey, 1, whole.view()), UsageError);
}

}  // namespace
}  // namespace convoy
