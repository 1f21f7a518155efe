// Tests of the Philox random number generator.
#include "convoy/kernels/base/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace convoy {
namespace {

using Words = std::array<std::uint32_t, 4>;

// The known-answer vectors of Random123 for philox4x32 with 10 rounds.
TEST(Philox, MatchesKnownAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}), (Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Random, DependsOnEachCoordinate) {
  const Random base{.seed = 5, .purpose = RandomPurpose::shuffle, .stream = 3};
  std::set<Words> seen;
  seen.insert(base.words(7, 2));
  seen.insert(base.words(8, 2));
  seen.insert(base.words(7, 3));
  seen.insert(base.words((std::uint64_t{1} << 32) + 7, 2));
  seen.insert(Random{6, base.purpose, 3}.words(7, 2));
  seen.insert(Random{(std::uint64_t{1} << 32) + 5, base.purpose, 3}.words(7, 2));
  seen.insert(Random{5, RandomPurpose::dropout, 3}.words(7, 2));
  seen.insert(Random{5, base.purpose, 4}.words(7, 2));
  EXPECT_EQ(seen.size(), 8u);
  EXPECT_EQ(base.words(7, 2), base.words(7, 2));
}

TEST(Random, ReadsTheEpochFromMemory) {
  constexpr Random layer{.seed = 5, .purpose = RandomPurpose::dropout, .stream = 3 << 18};
  std::int32_t epoch = 12;
  Random draws = layer;
  draws.cell = &epoch;
  const auto expected = [&](std::uint32_t e) {
    Random random = layer;
    random.stream ^= e;
    return random.words(7, 2);
  };
  EXPECT_EQ(draws.words(7, 2), expected(12));
  const Random resolved = draws.resolved();
  EXPECT_EQ(resolved.cell, nullptr);
  epoch = 13;
  EXPECT_EQ(draws.words(7, 2), expected(13));
  EXPECT_EQ(resolved.words(7, 2), expected(12));
  static_assert(layer.words(1) != Random{.seed = 5, .purpose = RandomPurpose::dropout}.words(1));
}

TEST(Random, UniformStaysBelowOne) {
  EXPECT_EQ(to_uniform(0), 0.0f);
  EXPECT_EQ(to_uniform(0xffffffff), 1.0f - 0x1p-24f);
  EXPECT_EQ(to_uniform53(0, 0), 0.0);
  EXPECT_EQ(to_uniform53(0xffffffff, 0xffffffff), 1.0 - 0x1p-53);
  EXPECT_EQ(to_below(0, 10), 0u);
  EXPECT_EQ(to_below(0xffffffff, 10), 9u);
  EXPECT_EQ(to_below(0xffffffff, 1), 0u);
}

TEST(Random, UniformIsUniform) {
  constexpr int kBins = 64;
  constexpr int kDraws = 1 << 18;
  const Random random{.seed = 1, .purpose = RandomPurpose::test};
  std::vector<int> counts(kBins), counts_below(kBins);
  double sum = 0;
  for (std::uint64_t i = 0; i < kDraws / 4; ++i) {
    for (const std::uint32_t word : random.words(i)) {
      const float u = to_uniform(word);
      ++counts[static_cast<std::size_t>(u * kBins)];
      ++counts_below[to_below(word, kBins)];
      sum += u;
    }
  }
  EXPECT_EQ(counts, counts_below) << "both use the leading bits";
  double chi_squared = 0;
  constexpr double kExpected = double{kDraws} / kBins;
  for (const int count : counts) chi_squared += (count - kExpected) * (count - kExpected) / kExpected;
  // The mean is kBins - 1 and the variance is twice that; five standard deviations are allowed.
  EXPECT_NEAR(chi_squared, kBins - 1, 5 * std::sqrt(2.0 * (kBins - 1)));
  EXPECT_NEAR(sum / kDraws, 0.5, 5 * std::sqrt(1.0 / 12 / kDraws));
}

}  // namespace
}  // namespace convoy
