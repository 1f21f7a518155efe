// Tests of Checksum (kernels/base/checksum.h).
#include "convoy/kernels/base/checksum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

namespace convoy {
namespace {

std::vector<char> random_bytes(std::size_t count, std::uint32_t seed = 1) {
  std::mt19937 words(seed);
  std::vector<char> bytes(count);
  for (char& byte : bytes) byte = static_cast<char>(words());
  return bytes;
}

std::uint64_t checksum_of(const std::vector<char>& bytes) {
  Checksum checksum;
  checksum.add(bytes.data(), bytes.size());
  return checksum.value();
}

void flip(std::vector<char>& bytes, std::size_t bit) {
  bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ (1 << bit % 8));
}

TEST(Checksum, ChangesWithEverySingleBit) {
  for (const std::size_t count : {1U, 7U, 8U, 64U, 65U, 1000U}) {
    for (const char fill : {'\0', '\xff', 'x'}) {
      std::vector<char> bytes = random_bytes(count);
      if (fill != 'x') std::fill(bytes.begin(), bytes.end(), fill);
      const std::uint64_t expected = checksum_of(bytes);
      for (std::size_t bit = 0; bit < 8 * count; ++bit) {
        flip(bytes, bit);
        ASSERT_NE(checksum_of(bytes), expected) << "bit " << bit << " of " << count << " bytes";
        flip(bytes, bit);
      }
    }
  }
}

TEST(Checksum, ChangesWithEveryChangeWithinAWord) {
  std::mt19937_64 words(3);
  std::vector<char> bytes = random_bytes(4096);
  const std::uint64_t expected = checksum_of(bytes);
  for (int trial = 0; trial < 2000; ++trial) {
    char* const word = bytes.data() + words() % (bytes.size() / 8) * 8;
    std::uint64_t before = 0;
    std::memcpy(&before, word, 8);
    const std::uint64_t after = before ^ (words() << words() % 64 | std::uint64_t{1} << words() % 64);
    if (after == before) continue;
    std::memcpy(word, &after, 8);
    ASSERT_NE(checksum_of(bytes), expected);
    std::memcpy(word, &before, 8);
  }
}

TEST(Checksum, MissesFewPairsOfFlippedBits) {
  std::mt19937 words(4);
  std::vector<char> bytes = random_bytes(65536);
  const std::uint64_t expected = checksum_of(bytes);
  constexpr int kPairs = 20000;
  int missed = 0;
  for (int pair = 0; pair < kPairs; ++pair) {
    const std::size_t one = words() % (8 * bytes.size()), other = words() % (8 * bytes.size());
    if (one == other) continue;
    flip(bytes, one);
    flip(bytes, other);
    missed += checksum_of(bytes) == expected ? 1 : 0;
    flip(bytes, one);
    flip(bytes, other);
  }
  EXPECT_LT(missed, kPairs / 1000);
}

TEST(Checksum, ChangesIfWordsOrLinesAreExchanged) {
  std::vector<char> bytes = random_bytes(1024);
  const std::uint64_t expected = checksum_of(bytes);
  for (const std::size_t size : {4U, 8U, 64U, 128U}) {
    std::swap_ranges(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin() + 512);
    EXPECT_NE(checksum_of(bytes), expected) << size;
    std::swap_ranges(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(size), bytes.begin() + 512);
  }
}

TEST(Checksum, DoesNotDependOnDivisionIntoWholeLinesOrAlignment) {
  const std::vector<char> bytes = random_bytes(5000);
  const std::uint64_t expected = checksum_of(bytes);
  for (const std::size_t part : {64U, 128U, 4096U}) {
    Checksum checksum;
    for (std::size_t at = 0; at < bytes.size(); at += part)
      checksum.add(bytes.data() + at, std::min(part, bytes.size() - at));
    EXPECT_EQ(checksum.value(), expected) << part;
  }
  std::vector<char> shifted(bytes.size() + 3);
  std::copy(bytes.begin(), bytes.end(), shifted.begin() + 3);
  Checksum checksum;
  checksum.add(shifted.data() + 3, bytes.size());
  EXPECT_EQ(checksum.value(), expected);
}

TEST(Checksum, CopiesWhatItReads) {
  for (const std::size_t count : {0U, 1U, 63U, 64U, 65U, 5000U}) {
    const std::vector<char> bytes = random_bytes(count);
    std::vector<char> copy(count + 1, 'x');
    Checksum checksum;
    checksum.copy(bytes.data(), copy.data(), count);
    EXPECT_EQ(checksum.value(), checksum_of(bytes));
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), copy.begin())) << count;
    EXPECT_EQ(copy.back(), 'x');
  }
}

}  // namespace
}  // namespace convoy
