// Tests of the vectorized Philox generator.
#include "convoy/kernels/cpu/primitives/random_words.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace convoy {
namespace {

constexpr std::uint32_t kGuard = 0x5a5a5a5a;
// Each word of the counter and the key takes values in the lower and upper half of its range.
constexpr Random kRandom{.seed = 0x89abcdef01234567, .purpose = RandomPurpose::dropout, .stream = 0xfedcba};

void expect_words(const Random& random, std::uint64_t a, std::uint32_t first, int quads,
                  const std::vector<std::uint32_t>& found) {
  for (int i = 0; i < quads; ++i) {
    const std::array<std::uint32_t, 4> expected = random.words(a, first + static_cast<std::uint32_t>(i));
    for (std::size_t k = 0; k < 4; ++k)
      ASSERT_EQ(found[static_cast<std::size_t>(4 * i) + k], expected[k]) << "item " << i << ", word " << k;
  }
}

TEST(RandomWords, MatchScalarPhilox) {
  for (const std::uint64_t a : {std::uint64_t{0}, std::uint64_t{0xffffffff80000001}})
    for (const std::uint32_t first : {0U, 1000003U, 0xfffffff0U})  // the last one wraps around
      for (const int quads : {0, 1, 7, kernels::kWideQuads - 1, kernels::kWideQuads, kernels::kWideQuads + 1,
                              3 * kernels::kWideQuads + 5}) {
        SCOPED_TRACE(::testing::Message() << "a " << a << ", first " << first << ", quads " << quads);
        std::vector<std::uint32_t> words(static_cast<std::size_t>(4 * quads) + 1, kGuard);
        kernels::draw_words(kRandom, a, first, quads, words.data());
        expect_words(kRandom, a, first, quads, words);
        EXPECT_EQ(words.back(), kGuard) << "written past the end";
      }
}

TEST(RandomWords, ReadTheEpochFromMemory) {
  const std::int32_t epoch = 7;
  Random by_cell = kRandom;
  by_cell.cell = &epoch;
  std::vector<std::uint32_t> words(std::size_t{4} * (kernels::kWideQuads + 1));
  kernels::draw_words(by_cell, 3, 5, kernels::kWideQuads + 1, words.data());
  expect_words(by_cell, 3, 5, kernels::kWideQuads + 1, words);
}

// Tests draw_wide_words() on every processor; draw_words() uses it only where it is fast.
TEST(RandomWords, MatchForWholeVectors) {
  std::vector<std::uint32_t> words(std::size_t{4} * kernels::kWideQuads);
  kernels::draw_wide_words(kRandom.counter(11, 13), kRandom.key(), words.data());
  expect_words(kRandom, 11, 13, kernels::kWideQuads, words);
}

}  // namespace
}  // namespace convoy
