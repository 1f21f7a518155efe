#include "convoy/comm/parallel/zero/sharded_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <utility>

#include "convoy/kernels/base/error.h"
#include "convoy/models/models.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::size_t kDouble = sizeof(double);

std::int64_t elements_of(const std::vector<dist::ShardPlan::Piece>& pieces) {
  return std::accumulate(pieces.begin(), pieces.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& piece) { return sum + piece.numel; });
}

/// Expects that each rank's pieces are within its shards, and that the pieces of all ranks contain every
/// element exactly once.
void expect_valid(const dist::ShardPlan& shards, const dist::BucketPlan& plan,
                  const std::vector<std::int64_t>& numels) {
  std::map<std::size_t, const dist::BucketPlan::Slice*> slices;
  for (const dist::BucketPlan::Bucket& bucket : plan.buckets)
    for (const dist::BucketPlan::Slice& slice : bucket.slices) slices[slice.parameter] = &slice;
  std::vector<std::vector<int>> owners(numels.size());
  for (std::size_t p = 0; p < numels.size(); ++p) owners[p].resize(static_cast<std::size_t>(numels[p]), -1);
  for (int rank = 0; rank < shards.ranks; ++rank)
    for (const dist::ShardPlan::Piece& piece : shards.pieces[static_cast<std::size_t>(rank)]) {
      const std::int64_t shard = shards.shard_numels[piece.bucket];
      EXPECT_GE(piece.offset, 0);
      EXPECT_LE(piece.offset + piece.numel, shard);
      EXPECT_EQ(shard * rank + piece.offset, slices.at(piece.parameter)->offset + piece.begin);
      for (std::int64_t e = piece.begin; e < piece.begin + piece.numel; ++e)
        EXPECT_EQ(std::exchange(owners[piece.parameter].at(static_cast<std::size_t>(e)), rank), -1);
    }
  for (const std::vector<int>& of_one : owners)
    EXPECT_EQ(std::count(of_one.begin(), of_one.end(), -1), 0) << "an element without an owner";
}

TEST(ShardPlan, AssignsEveryElementToOneRank) {
  std::mt19937 random(1);
  const auto draw = [&](int from, int to) { return std::uniform_int_distribution(from, to)(random); };
  for (int round = 0; round < 60; ++round) {
    std::vector<std::int64_t> numels(static_cast<std::size_t>(draw(1, 12)));
    for (std::int64_t& numel : numels) numel = draw(1, 700);
    numels.front() = 5000;  // enough for all ranks
    dist::BucketLimits limits{.element_bytes = kDouble,
                              .bucket_bytes = static_cast<std::size_t>(draw(64, 9000))};
    limits.last_bytes = std::min<std::size_t>(limits.bucket_bytes, 512);
    limits.alignment = dist::ShardPlan::kAlignment;
    const dist::BucketPlan plan = dist::BucketPlan::by_order(numels, limits);
    const int ranks = draw(1, 9);
    const dist::ShardPlan shards = dist::ShardPlan::of(plan, ranks, kDouble);
    expect_valid(shards, plan, numels);
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      EXPECT_GE(shards.numel(b), plan.buckets[b].numel);
      EXPECT_EQ(shards.shard_numels[b] % 8, 0);  // 64 bytes
      EXPECT_LE(shards.numel(b), shards.max_numel());
    }
    if (HasFailure()) return;
  }
}

TEST(ShardPlan, SplitsParameterAtShardBoundary) {
  const std::vector<std::int64_t> numels = {8, 24};
  dist::BucketLimits limits{.element_bytes = kDouble};
  limits.alignment = dist::ShardPlan::kAlignment;
  const dist::ShardPlan shards = dist::ShardPlan::of(dist::BucketPlan::by_order(numels, limits), 2, kDouble);
  using Piece = dist::ShardPlan::Piece;
  EXPECT_THAT(shards.shard_numels, ElementsAre(16));  // the bucket is parameter 1, then 0
  EXPECT_THAT(shards.pieces[0], ElementsAre(Piece{.parameter = 1, .numel = 16}));
  EXPECT_THAT(shards.pieces[1], ElementsAre(Piece{.parameter = 1, .begin = 16, .numel = 8},
                                            Piece{.parameter = 0, .numel = 8, .offset = 8}));
}

/// Checks the shard sizes of real models, which determine the memory of each rank.
TEST(ShardPlan, ShardsOfRealModelsAreBalanced) {
  for (const char* name : {"lenet", "resnet20", "resnet18"}) {
    const models::Model model = models::make(name);
    std::vector<std::int64_t> numels;
    for (const nn::NamedParameter& parameter : model.parameters())
      numels.push_back(parameter.variable.shape().numel());
    dist::BucketLimits limits = dist::BucketLimits::of(10, DType::f32);
    limits.alignment = dist::ShardPlan::kAlignment;
    const dist::BucketPlan plan = dist::BucketPlan::by_order(numels, limits);
    const std::int64_t total = std::accumulate(numels.begin(), numels.end(), std::int64_t{0});
    for (const int ranks : {2, 3, 4, 8}) {
      const dist::ShardPlan shards = dist::ShardPlan::of(plan, ranks, sizeof(float));
      // In addition to 1/N of the elements, a rank has at most the padding of its shards and 1/N of the gaps.
      constexpr auto kLine = static_cast<std::int64_t>(dist::ShardPlan::kAlignment / sizeof(float));
      std::int64_t with_gaps = 0;
      for (const dist::BucketPlan::Bucket& bucket : plan.buckets) with_gaps += bucket.numel;
      EXPECT_LT(with_gaps - total, 5 * kLine) << name;
      const std::int64_t maximum = with_gaps / ranks + static_cast<std::int64_t>(plan.buckets.size()) * kLine;
      for (const auto& pieces : shards.pieces)
        EXPECT_LE(elements_of(pieces), maximum) << name << " on " << ranks;
    }
  }
}

TEST(ShardPlan, RejectsTooManyRanks) {
  const std::vector<std::int64_t> numels = {10};
  const dist::BucketPlan plan = dist::BucketPlan::by_order(numels, {.element_bytes = kDouble});
  EXPECT_THAT(message_of<UsageError>([&] { dist::ShardPlan::of(plan, 9, kDouble); }),
              HasSubstr("sharding: the model is too small for 9 ranks: rank 2 would get no element"));
}

}  // namespace
}  // namespace convoy::testing
