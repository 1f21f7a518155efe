// The order of an epoch in constant memory: a bijection for all small sizes, lanes of few blocks, and sizes near the limit.
#include "convoy/datasets/loader/block_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "convoy/datasets/loader/sampler.h"

namespace convoy::data {
namespace {

std::vector<std::int64_t> order_of(const BlockOrder& order) {
  std::vector<std::int64_t> ids;
  for (std::int64_t position = 0; position < order.samples; ++position) ids.push_back(order.at(position));
  return ids;
}

bool is_permutation(std::vector<std::int64_t> ids) {
  std::sort(ids.begin(), ids.end());
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (ids[i] != static_cast<std::int64_t>(i)) return false;
  return true;
}

TEST(Permuted, IsABijectionOfEverySmallRange) {
  for (std::uint64_t n = 1; n <= 130; ++n) {
    const Random random{n, RandomPurpose::shuffle, 3};
    std::vector<std::int64_t> ids;
    for (std::uint64_t x = 0; x < n; ++x) ids.push_back(static_cast<std::int64_t>(permuted(x, n, random, 5)));
    EXPECT_TRUE(is_permutation(ids)) << n;
  }
}

TEST(Permuted, DependsOnSeedEpochAndKey) {
  const auto order = [](std::uint64_t seed, std::uint32_t epoch, std::uint32_t key) {
    std::vector<std::uint64_t> ids;
    for (std::uint64_t x = 0; x < 1000; ++x)
      ids.push_back(permuted(x, 1000, {seed, RandomPurpose::shuffle, epoch}, key));
    return ids;
  };
  const std::set<std::vector<std::uint64_t>> all = {order(1, 0, 0), order(2, 0, 0), order(1, 1, 0),
                                                    order(1, 0, 1)};
  EXPECT_EQ(all.size(), 4u);
  EXPECT_EQ(order(1, 0, 0), order(1, 0, 0));
}

TEST(Permuted, SendsEveryNumberToEveryPlaceEquallyOften) {
  // Each of the 64 cells has 4000 / 8 = 500 hits with a standard deviation of 21: six of them are 126.
  std::vector<int> hits(64);
  for (std::uint64_t seed = 0; seed < 4000; ++seed)
    for (std::uint64_t x = 0; x < 8; ++x)
      ++hits[x * 8 + permuted(x, 8, {seed, RandomPurpose::shuffle, 0}, 0)];
  for (const int count : hits) EXPECT_NEAR(count, 500, 126);
}

TEST(BlockOrder, HasEachSampleOnceForAllSmallSizes) {
  for (std::int64_t samples = 1; samples <= 40; ++samples)
    for (const std::int64_t block : {1, 4, 7, 64})
      for (const std::int64_t batch : {1, 5, 12, 64, 100})
        EXPECT_TRUE(
            is_permutation(order_of({.samples = samples, .block = block, .global_batch = batch, .epoch = 2})))
            << samples << " samples, blocks of " << block << ", batches of " << batch;
  EXPECT_TRUE(is_permutation(order_of({.samples = 5'011, .block = 32, .global_batch = 256, .seed = 9})));
}

TEST(BlockOrder, ChangesWithEpochAndSeed) {
  const BlockOrder first{.samples = 500, .block = 8, .global_batch = 20};
  BlockOrder epoch = first, seed = first;
  epoch.epoch = 1;
  seed.seed = 2;
  EXPECT_NE(order_of(first), order_of(epoch));
  EXPECT_NE(order_of(first), order_of(seed));
}

/// Returns how many blocks the ranks together read until the end of the epoch, if each keeps the last `kept` blocks.
std::int64_t blocks_read(const BlockOrder& order, int ranks, std::size_t kept) {
  std::int64_t read = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const BatchPlan plan{
        .samples = order.samples, .global_batch = order.global_batch, .rank = rank, .world_size = ranks};
    std::vector<std::int64_t> cache;
    for (std::int64_t step = 0; step < plan.steps(); ++step)
      for (std::int64_t at = plan.positions(step, 0).begin; at < plan.positions(step, 0).end; ++at) {
        const std::int64_t block = order.at(at) / order.block;
        const auto found = std::find(cache.begin(), cache.end(), block);
        if (found != cache.end())
          cache.erase(found);
        else
          ++read;
        cache.push_back(block);
        if (cache.size() > kept) cache.erase(cache.begin());
      }
  }
  return read;
}

TEST(BlockOrder, LetsEachRankReadFewBlocksAndNearlyEachBlockOnce) {
  const BlockOrder order{.samples = 64 * 100, .block = 16, .global_batch = 128};
  const std::int64_t blocks = order.samples / order.block;
  // A rank with 64 / N lanes has so many blocks in use. A lane ends in the block in which the next one begins.
  EXPECT_LE(blocks_read(order, 1, 2 * 64), blocks + 64);
  EXPECT_LE(blocks_read(order, 4, 2 * 16), blocks + 64);
  EXPECT_LE(blocks_read(order, 16, 2 * 4), blocks + 64);
}

TEST(BlockOrder, MixesManyBlocksInABatch) {
  const BlockOrder order{.samples = 64 * 100, .block = 16, .global_batch = 128};
  std::set<std::int64_t> blocks;
  for (std::int64_t at = 0; at < order.global_batch; ++at) blocks.insert(order.at(at) / order.block);
  EXPECT_GE(blocks.size(), 48u);
}

TEST(BlockOrder, NeedsNoMemoryForTwoBillionSamples) {
  const BlockOrder order{.samples = 2'000'000'000, .block = 32, .global_batch = 4096, .epoch = 7};
  std::set<std::int64_t> ids;
  for (std::int64_t i = 0; i < 5'000; ++i) {
    const std::int64_t id = order.at(i * 99'991 % order.samples);
    EXPECT_TRUE(0 <= id && id < order.samples);
    ids.insert(id);
  }
  EXPECT_EQ(ids.size(), 5'000u);
}

}  // namespace
}  // namespace convoy::data
