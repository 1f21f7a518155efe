#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include "convoy/datasets/loader/sampler.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"

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

TEST(BalancedOrder, HasAsManySamplesOfEachClass) {
  std::vector<std::int32_t> labels(103, 4);  // 90 of class 4, 10 of class 0, 3 of class 7
  std::fill_n(labels.begin() + 20, 10, 0);
  std::fill_n(labels.begin() + 50, 3, 7);
  std::set<std::int32_t> of_class_4;  // of all epochs
  for (std::int64_t epoch = 0; epoch < 8; ++epoch) {
    const std::vector<std::int32_t> order = data::balanced_order(labels, 5, epoch);
    ASSERT_EQ(order.size(), labels.size());
    EXPECT_EQ(std::set(order.begin(), order.end()).size(), order.size())
        << "each repetition is a sample of its own";
    std::map<std::int32_t, int> by_class, by_row;
    for (const std::int32_t sample : order) {
      const std::int32_t row = sample % 103;
      ++by_class[labels[static_cast<std::size_t>(row)]];
      EXPECT_LT(sample / 103, 12);
      ++by_row[row];
      if (labels[static_cast<std::size_t>(row)] == 4) of_class_4.insert(row);
    }
    EXPECT_EQ(by_class, (std::map<std::int32_t, int>{{0, 35}, {4, 34}, {7, 34}}));
    for (const auto& [row, count] : by_row) {
      const int maximum = row >= 50 && row < 53 ? 12 : row >= 20 && row < 30 ? 4 : 1;
      EXPECT_LE(count, maximum) << "sample " << row;
      EXPECT_GE(count, maximum - 1) << "sample " << row;
    }
  }
  EXPECT_GE(of_class_4.size(), 80u) << "other samples in each epoch";
  EXPECT_EQ(data::balanced_order(labels, 5, 3), data::balanced_order(labels, 5, 3));
  EXPECT_NE(data::balanced_order(labels, 5, 3), data::balanced_order(labels, 5, 4));
  EXPECT_NE(data::balanced_order(labels, 5, 3), data::balanced_order(labels, 6, 3));
  EXPECT_EQ(data::balanced_order({}, 5, 3), std::vector<std::int32_t>());
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

// Tests of the division of training images into those to train on and those held out for validation.

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// Returns a set of images [1, 2, 1] whose first pixel is their number and whose second is their label.
data::ImageSet numbered(const std::vector<std::int32_t>& labels) {
  const auto count = std::ssize(labels);
  std::vector<std::uint8_t> pixels;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    pixels.push_back(static_cast<std::uint8_t>(i));
    pixels.push_back(static_cast<std::uint8_t>(labels[i]));
  }
  return {Tensor::from(pixels, {count, 1, 2, 1}, Device::cpu()),
          Tensor::from(labels, {count}, Device::cpu())};
}

/// Returns the numbers of the images, and checks that each has its label.
std::vector<int> numbers_of(const data::ImageSet& set) {
  const auto pixels = set.images.to_vector<std::uint8_t>();
  const auto labels = set.labels.to_vector<std::int32_t>();
  std::vector<int> numbers;
  for (std::size_t i = 0; i < labels.size(); ++i) {
    numbers.push_back(pixels[2 * i]);
    EXPECT_EQ(pixels[2 * i + 1], labels[i]);
  }
  return numbers;
}

/// Returns the number of images by class.
std::vector<int> counts_of(const data::ImageSet& set, std::size_t classes) {
  std::vector<int> counts(classes);
  for (const std::int32_t label : set.labels.to_vector<std::int32_t>())
    ++counts[static_cast<std::size_t>(label)];
  return counts;
}

std::vector<std::int32_t> labels_of(const std::vector<int>& counts) {
  std::vector<std::int32_t> labels;
  for (std::size_t label = 0; label < counts.size(); ++label)
    labels.insert(labels.end(), static_cast<std::size_t>(counts[label]), static_cast<std::int32_t>(label));
  return labels;
}

TEST(HoldOut, DividesEachImageToOnePartInOrder) {
  const data::ImageSet set = numbered(labels_of({40, 60}));
  const auto [kept, held_out] = data::hold_out(set, 30, 5);
  const std::vector<int> first = numbers_of(kept), second = numbers_of(held_out);
  EXPECT_TRUE(std::is_sorted(first.begin(), first.end()));
  EXPECT_TRUE(std::is_sorted(second.begin(), second.end()));
  std::set<int> all(first.begin(), first.end());
  all.insert(second.begin(), second.end());
  EXPECT_EQ(all.size(), 100u);
  EXPECT_EQ(second.size(), 30u);
}

TEST(HoldOut, KeepsTheFractionsOfTheClasses) {
  const auto counts = [](const std::vector<int>& images, std::int64_t count) {
    return counts_of(data::hold_out(numbered(labels_of(images)), count, 1).second, images.size());
  };
  EXPECT_THAT(counts({50, 30, 20}, 10), ElementsAre(5, 3, 2));
  // 2.5, 1.5 and 1 images: the largest remainders are rounded up, of equal ones the first.
  EXPECT_THAT(counts({50, 30, 20}, 5), ElementsAre(3, 1, 1));
  // 0.9 of a single image would leave none to train on.
  EXPECT_THAT(counts({1, 1, 18}, 17), ElementsAre(0, 0, 17));
}

TEST(HoldOut, DependsOnTheSeedOnly) {
  const data::ImageSet set = numbered(labels_of({50, 50}));
  const auto drawn = [&](std::uint64_t seed) { return numbers_of(data::hold_out(set, 20, seed).second); };
  EXPECT_EQ(drawn(1), drawn(1));
  EXPECT_NE(drawn(1), drawn(2));
}

TEST(HoldOut, RefusesCountsThatLeaveAClassWithoutImages) {
  const data::ImageSet set = numbered(labels_of({5, 5}));
  EXPECT_EQ(data::hold_out(set, 8, 1).first.size(), 2);
  for (const std::int64_t count : {-1, 0, 9, 10, 11})
    EXPECT_THAT(testing::message_of<UsageError>([&] { data::hold_out(set, count, 1); }),
                HasSubstr("expected 1 to 8, which leaves one per class"))
        << count;
}

}  // namespace

}  // namespace convoy
