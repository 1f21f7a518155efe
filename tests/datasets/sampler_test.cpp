#include "convoy/datasets/loader/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "convoy/kernels/base/error.h"

namespace convoy {
namespace {

std::vector<std::int32_t> counting(std::int64_t n) {
  std::vector<std::int32_t> values(static_cast<std::size_t>(n));
  std::iota(values.begin(), values.end(), 0);
  return values;
}

TEST(EpochOrder, IsAPermutation) {
  for (const std::int64_t n : {0, 1, 2, 3, 4, 5, 6, 7, 8, 17, 127, 1000, 50'000}) {
    std::vector<std::int32_t> order = data::epoch_order(n, 1, 0);
    std::sort(order.begin(), order.end());
    EXPECT_EQ(order, counting(n)) << n;
  }
}

TEST(EpochOrder, DependsOnlyOnSeedAndEpoch) {
  EXPECT_EQ(data::epoch_order(1000, 5, 3), data::epoch_order(1000, 5, 3));
  EXPECT_NE(data::epoch_order(1000, 5, 3), data::epoch_order(1000, 5, 4));
  EXPECT_NE(data::epoch_order(1000, 5, 3), data::epoch_order(1000, 6, 3));
  EXPECT_NE(data::epoch_order(1000, 5, 3),
            data::epoch_order(1000, 5 + (std::uint64_t{1} << 32), 3));  // all 64 bits count
  EXPECT_NE(data::epoch_order(1000, 5, 3), counting(1000));
}

TEST(EpochOrder, DrawsEveryPermutationEquallyOften) {
  // 24 permutations of 4 samples, 24,000 epochs: each count is binomial with mean 1000 and standard deviation
  // 31. The bound is 6 standard deviations.
  std::vector<int> counts(256);
  for (std::int64_t epoch = 0; epoch < 24'000; ++epoch) {
    const std::vector<std::int32_t> order = data::epoch_order(4, 9, epoch);
    ++counts[static_cast<std::size_t>(order[0] + 4 * order[1] + 16 * order[2] + 64 * order[3])];
  }
  EXPECT_EQ(std::count_if(counts.begin(), counts.end(), [](int count) { return count > 0; }), 24);
  for (const int count : counts) EXPECT_TRUE(count == 0 || std::abs(count - 1000) < 6 * 31) << count;
}

TEST(EpochOrder, RefusesValuesOutOfRange) {
  EXPECT_THROW(data::epoch_order(-1, 1, 0), UsageError);
  EXPECT_THROW(data::epoch_order(std::int64_t{1} << 31, 1, 0), UsageError);
  EXPECT_THROW(data::epoch_order(10, 1, -1), UsageError);
  EXPECT_THROW(data::epoch_order(10, 1, 1 << 24), UsageError);
}

TEST(ShardRange, PartitionsExactly) {
  for (const int world_size : {1, 2, 3, 4, 5, 7, 8, 64})
    for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 9, 63, 64, 65, 128, 50'000}) {
      std::int64_t end = 0;
      for (int rank = 0; rank < world_size; ++rank) {
        const data::Range share = data::shard_range(count, rank, world_size);
        EXPECT_EQ(share.begin, end);
        EXPECT_GE(share.size(), count / world_size);
        EXPECT_LE(share.size(), (count + world_size - 1) / world_size);
        EXPECT_LE(share.size(), data::shard_range(count, 0, world_size).size());
        end = share.end;
      }
      EXPECT_EQ(end, count);
    }
}

TEST(ShardRange, GivesTheLargerShardsToTheFirstRanks) {
  EXPECT_EQ(data::shard_range(128, 0, 3).size(), 43);
  EXPECT_EQ(data::shard_range(128, 1, 3).size(), 43);
  EXPECT_EQ(data::shard_range(128, 2, 3).size(), 42);
}

/// Checks one epoch on all ranks. Every position occurs once, and each step covers exactly its range of the
/// order. All ranks have the same number of micro-batches, none is too large, and those of a rank are in
/// order.
void check_epoch(std::int64_t samples, std::int64_t global_batch, std::int64_t micro_batch, int world_size) {
  SCOPED_TRACE(::testing::Message() << samples << " samples, batch " << global_batch << ", micro-batch "
                                    << micro_batch << ", " << world_size << " ranks");
  const data::BatchPlan first{samples, global_batch, micro_batch, 0, world_size};
  ASSERT_EQ(first.steps(), (samples + global_batch - 1) / global_batch);
  std::vector<int> seen(static_cast<std::size_t>(samples));
  for (std::int64_t step = 0; step < first.steps(); ++step) {
    const std::int64_t begin = step * global_batch;
    const std::int64_t end = std::min(samples, begin + global_batch);
    ASSERT_EQ(first.global_count(step), end - begin);
    std::int64_t next = begin, smallest = samples;
    for (int rank = 0; rank < world_size; ++rank) {
      const data::BatchPlan plan{samples, global_batch, micro_batch, rank, world_size};
      ASSERT_EQ(plan.micro_batches(step), first.micro_batches(step));
      ASSERT_GE(plan.micro_batches(step), 1);
      for (std::int64_t index = 0; index < plan.micro_batches(step); ++index) {
        const data::Range part = plan.positions(step, index);
        ASSERT_EQ(part.begin, next);
        ASSERT_GE(part.size(), 0);
        ASSERT_TRUE(micro_batch == 0 || part.size() <= micro_batch);
        smallest = std::min(smallest, part.size());
        for (std::int64_t position = part.begin; position < part.end; ++position)
          ++seen[static_cast<std::size_t>(position)];
        next = part.end;
      }
    }
    ASSERT_EQ(next, end);
    ASSERT_EQ(first.smallest_micro_batch(step), smallest);
  }
  EXPECT_TRUE(std::all_of(seen.begin(), seen.end(), [](int count) { return count == 1; }));
}

TEST(BatchPlan, VisitsEverySampleOncePerEpoch) {
  for (const int world_size : {1, 2, 3, 4, 8})
    for (const std::int64_t micro_batch : {0, 1, 3, 16, 1000})
      for (const std::int64_t global_batch : {1, 2, 7, 32, 128})
        for (const std::int64_t samples : {0, 1, 2, 7, 31, 127, 128, 129, 385})
          check_epoch(samples, global_batch, micro_batch, world_size);
}

TEST(BatchPlan, HasNoMoreMicroBatchesThanNeeded) {
  EXPECT_EQ((data::BatchPlan{1000, 128, 0, 0, 3}.micro_batches(0)), 1);
  EXPECT_EQ((data::BatchPlan{1000, 128, 43, 2, 3}.micro_batches(0)), 1);
  EXPECT_EQ((data::BatchPlan{1000, 128, 42, 2, 3}.micro_batches(0)), 2);  // rank 0 has 43
  EXPECT_EQ((data::BatchPlan{1000, 128, 16, 0, 1}.micro_batches(7)), 7);  // the last step has 104 samples
}

}  // namespace
}  // namespace convoy
