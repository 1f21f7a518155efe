// Tests that simulated transfers match values computed by hand.
#include "bench/overlap/link.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/overlap/plans.h"

namespace convoy::bench {
namespace {

using ::testing::ElementsAre;

constexpr double kRounding = 1e-9;

/// Returns a record with gradients given as (f32 elements, ready time in ms) and a backward of 10 ms.
StepRecord record_of(const std::vector<std::pair<std::int64_t, double>>& gradients) {
  StepRecord record{.model = "made up",
                    .batch = 1,
                    .precision = "fp32",
                    .device = "paper",
                    .step_ms = 20,
                    .backward_ms = 10};
  for (const auto& [numel, ready_ms] : gradients)
    record.gradients.push_back({.name = "p", .numel = numel, .ready_ms = ready_ms});
  return record;
}

dist::BucketPlan parsed(const StepRecord& record, const std::string& lists) {
  std::int64_t elements = 0;
  for (const std::int64_t numel : record.numels()) elements += numel;
  return dist::BucketPlan::parse("buckets of " + std::to_string(record.gradients.size()) + " parameters, " +
                                     std::to_string(elements) + " elements: " + lists,
                                 record.numels());
}

TEST(OverlapLink, TimeIsLatencyPlusBytesOverBusBandwidth) {
  // Eight ranks transfer 14/8 of the bytes, two ranks 2/2.
  EXPECT_NEAR((Link{.gb_s = 1, .latency_us = 0, .ranks = 8}.ms_for(1000000)), 1.75, kRounding);
  EXPECT_NEAR((Link{.gb_s = 25, .latency_us = 20, .ranks = 2}.ms_for(50000000)), 2.02, kRounding);
  EXPECT_NEAR((Link{.gb_s = 25, .latency_us = 20, .ranks = 2}.ms_for(0)), 0.02, kRounding);
}

TEST(OverlapLink, CountsPaddingAndFlagsOfTheSynchronizer) {
  const StepRecord record = record_of({{64, 3}, {65, 2}, {64, 1}});
  const dist::BucketPlan plan = parsed(record, "2 1 | 0");
  // First bucket: 64 values, and 65 padded to 128. Last bucket: 64 values and three flags.
  EXPECT_THAT(sent_bytes(plan, DType::f32), ElementsAre(4U * (64 + 128), 4U * (64 + 3)));
  EXPECT_THAT(sent_bytes(plan, DType::bf16), ElementsAre(2U * (64 + 128), 2U * (64 + 3)));
}

// A link that transfers one byte per nanosecond: 250,000 values in f32 take a millisecond.
constexpr Link kBytePerNanosecond{.gb_s = 1, .latency_us = 0, .ranks = 2};
constexpr std::int64_t kMillisecond = 250048;  // a multiple of 64
constexpr double kTransferMs = 4 * kMillisecond * 1e-6;
constexpr double kFlagsMs = 3 * 4 * 1e-6;

TEST(OverlapLink, HidesTransfersThatEndBeforeBackward) {
  const StepRecord record = record_of({{kMillisecond, 10}, {kMillisecond, 6}, {kMillisecond, 2}});
  const Exposure exposure = simulate(record, parsed(record, "2 | 1 | 0"), DType::f32, kBytePerNanosecond);
  ASSERT_EQ(exposure.transfers.size(), 3U);
  for (std::size_t b = 0; b < 3; ++b) {
    EXPECT_NEAR(exposure.transfers[b].begin_ms, 2.0 + 4.0 * static_cast<double>(b), kRounding);
    EXPECT_NEAR(exposure.transfers[b].end_ms,
                exposure.transfers[b].begin_ms + kTransferMs + (b == 2 ? kFlagsMs : 0), kRounding);
  }
  EXPECT_NEAR(exposure.comm_ms, 3 * kTransferMs + kFlagsMs, kRounding);
  EXPECT_NEAR(exposure.exposed_ms, kTransferMs + kFlagsMs, kRounding);
  EXPECT_NEAR(exposure.hidden(), 2.0 / 3, 1e-4);
}

TEST(OverlapLink, BucketWaitsForItsLastGradientAndPreviousBuckets) {
  const StepRecord record = record_of({{kMillisecond, 5}, {kMillisecond, 9.5}, {kMillisecond, 2}});
  // Gradient 0 is ready at 5 ms, but its bucket is transferred after the bucket that waits for gradient 1.
  const Exposure exposure = simulate(record, parsed(record, "2 1 | 0"), DType::f32, kBytePerNanosecond);
  ASSERT_EQ(exposure.transfers.size(), 2U);
  EXPECT_NEAR(exposure.transfers[0].begin_ms, 9.5, kRounding);
  EXPECT_NEAR(exposure.transfers[1].begin_ms, 9.5 + 2 * kTransferMs, kRounding);
  EXPECT_NEAR(exposure.exposed_ms, 3 * kTransferMs + kFlagsMs - 0.5, kRounding);
}

TEST(OverlapLink, ExposesNothingIfTransfersEndBeforeBackward) {
  const StepRecord record = record_of({{kMillisecond, 3}, {kMillisecond, 1}});
  const Exposure exposure = simulate(record, parsed(record, "1 | 0"), DType::f32, kBytePerNanosecond);
  EXPECT_EQ(exposure.exposed_ms, 0);
  EXPECT_EQ(exposure.hidden(), 1);
}

TEST(OverlapLink, AddsTheLatencyOfEachTransfer) {
  const StepRecord record = record_of({{64, 10}, {64, 10}, {64, 10}});
  const Link slow_to_start{.gb_s = 1e6, .latency_us = 1000, .ranks = 2};
  EXPECT_NEAR(simulate(record, parsed(record, "2 | 1 | 0"), DType::f32, slow_to_start).exposed_ms, 3, 1e-5);
  EXPECT_NEAR(simulate(record, parsed(record, "2 1 0"), DType::f32, slow_to_start).exposed_ms, 1, 1e-5);
}

TEST(OverlapLink, HalfPrecisionTakesHalfTheTime) {
  const StepRecord record = record_of({{kMillisecond, 10}});
  const dist::BucketPlan plan = parsed(record, "0");
  const double single = simulate(record, plan, DType::f32, kBytePerNanosecond).exposed_ms;
  EXPECT_NEAR(simulate(record, plan, DType::bf16, kBytePerNanosecond).exposed_ms, single / 2, kRounding);
}

TEST(OverlapPlans, GroupTheSameGradientsInFourWays) {
  const StepRecord record = record_of({{200000, 8}, {100, 6}, {300000, 4}, {100, 2}});
  const std::vector<NamedPlan> plans = compared_plans(record);
  std::vector<std::string> texts;
  for (const NamedPlan& plan : plans)
    texts.push_back(plan.name + plan.plan.text().substr(plan.plan.text().find(':')));
  EXPECT_THAT(texts, ElementsAre("convoy: 3 2 1 | 0", "PyTorch's rule: 3 2 | 1 0", "one bucket: 3 2 1 0",
                                 "one per parameter: 3 | 2 | 1 | 0"));
}

}  // namespace
}  // namespace convoy::bench
