#include "convoy/comm/parallel/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <random>

#include "convoy/kernels/base/error.h"
#include "convoy/models/models.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr double kNever = std::numeric_limits<double>::infinity();

std::vector<std::vector<std::size_t>> parameters_of(const dist::BucketPlan& plan) {
  std::vector<std::vector<std::size_t>> all;
  for (const dist::BucketPlan::Bucket& bucket : plan.buckets) {
    all.emplace_back();
    for (const dist::BucketPlan::Slice& slice : bucket.slices) all.back().push_back(slice.parameter);
  }
  return all;
}

std::size_t bytes_of(const dist::BucketPlan::Bucket& bucket, std::size_t element_bytes) {
  return static_cast<std::size_t>(bucket.numel) * element_bytes;
}

std::vector<double> megabytes_of(const dist::BucketPlan& plan) {
  std::vector<double> megabytes;
  for (const dist::BucketPlan::Bucket& bucket : plan.buckets)
    megabytes.push_back(static_cast<double>(bytes_of(bucket, 4)) / 1e6);
  return megabytes;
}

/// Checks the properties that every plan must have, and that its parameters are in the given order.
void expect_valid(const dist::BucketPlan& plan, const std::vector<std::int64_t>& numels,
                  const std::vector<std::size_t>& order, const dist::BucketLimits& limits) {
  std::vector<std::size_t> found;
  for (const dist::BucketPlan::Bucket& bucket : plan.buckets) {
    std::int64_t end = 0;
    ASSERT_FALSE(bucket.slices.empty());
    for (const dist::BucketPlan::Slice& slice : bucket.slices) {
      found.push_back(slice.parameter);
      EXPECT_EQ(slice.numel, numels[slice.parameter]);
      EXPECT_GE(slice.offset, end);
      EXPECT_EQ(static_cast<std::size_t>(slice.offset) * limits.element_bytes % limits.alignment, 0U);
      end = slice.offset + slice.numel;
    }
    EXPECT_GE(bucket.numel, end);
    EXPECT_LT(bytes_of(bucket, limits.element_bytes),
              static_cast<std::size_t>(end) * limits.element_bytes + limits.alignment);
  }
  EXPECT_EQ(found, order);  // each parameter once, in the given order

  std::size_t limit = limits.last_bytes;
  for (std::size_t b = plan.buckets.size(); b-- > 0;) {
    const dist::BucketPlan::Bucket& bucket = plan.buckets[b];
    if (bucket.slices.size() > 1) {
      EXPECT_LE(bytes_of(bucket, limits.element_bytes), limit) << "bucket " << b;
    }
    if (b > 0) {  // the bucket is full: the parameter before it did not fit
      const std::int64_t before = plan.buckets[b - 1].slices.back().numel;
      EXPECT_GT(bytes_of(bucket, limits.element_bytes) +
                    static_cast<std::size_t>(before) * limits.element_bytes + limits.alignment,
                limit);
    }
    limit = std::min(limits.bucket_bytes, limit * dist::BucketPlan::kGrowth);
  }
}

TEST(BucketPlan, UsesReverseRegistrationOrderAndGrowsFromTheEnd) {
  // 64 floats are 256 bytes. From the end: 0 and 1 fill 512 bytes, 2 to 5 fill 2048, and 6 is larger than
  // 4096.
  const std::vector<std::int64_t> numels = {64, 3, 128, 64, 64, 256, 5000, 64};
  const dist::BucketPlan plan = dist::BucketPlan::by_order(numels, {.bucket_bytes = 4096, .last_bytes = 512});
  EXPECT_THAT(parameters_of(plan),
              ElementsAre(ElementsAre(7), ElementsAre(6), ElementsAre(5, 4, 3, 2), ElementsAre(1, 0)));
  EXPECT_EQ(plan.buckets[3].slices[1].offset, 64);
  EXPECT_EQ(plan.buckets[3].numel, 128);
}

TEST(BucketPlan, OrdersByReadyTimesAndPutsMissingGradientsLast) {
  const std::vector<std::int64_t> numels(5, 64);
  const std::vector<double> ready = {2, kNever, 0.5, 2, 1};
  const dist::BucketPlan plan =
      dist::BucketPlan::by_ready_times(numels, ready, {.bucket_bytes = 512, .last_bytes = 256});
  EXPECT_THAT(parameters_of(plan), ElementsAre(ElementsAre(2, 4), ElementsAre(3, 0), ElementsAre(1)));
}

TEST(BucketPlan, IsValidForRandomSizes) {
  std::mt19937 random(1);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  for (int round = 0; round < 300; ++round) {
    SCOPED_TRACE(round);
    std::vector<std::int64_t> numels(static_cast<std::size_t>(draw(1, 60)));
    for (std::int64_t& numel : numels) numel = draw(1, draw(0, 1) == 0 ? 300 : 30000);
    dist::BucketLimits limits{.element_bytes = draw(0, 1) == 0 ? 4U : 8U,
                              .bucket_bytes = static_cast<std::size_t>(draw(1, 100000))};
    limits.last_bytes = static_cast<std::size_t>(draw(1, static_cast<std::int64_t>(limits.bucket_bytes)));

    std::vector<std::size_t> order(numels.size());
    std::iota(order.rbegin(), order.rend(), std::size_t{0});
    const dist::BucketPlan by_order = dist::BucketPlan::by_order(numels, limits);
    expect_valid(by_order, numels, order, limits);
    EXPECT_EQ(dist::BucketPlan::by_ready_times(numels, std::vector<double>(numels.size(), 1), limits),
              by_order);

    std::shuffle(order.begin(), order.end(), random);
    std::vector<double> ready(numels.size());
    for (std::size_t i = 0; i < order.size(); ++i) ready[order[i]] = static_cast<double>(i);
    const dist::BucketPlan by_times = dist::BucketPlan::by_ready_times(numels, ready, limits);
    expect_valid(by_times, numels, order, limits);
    EXPECT_EQ(dist::BucketPlan::parse(by_times.text(), numels, limits), by_times);
  }
}

TEST(BucketPlan, FormatsText) {
  const std::vector<std::int64_t> numels = {1000, 64, 64, 64};
  const dist::BucketPlan plan = dist::BucketPlan::by_order(numels, {.bucket_bytes = 1024, .last_bytes = 256});
  EXPECT_EQ(plan.text(), "buckets of 4 parameters, 1192 elements: 3 2 1 | 0");
}

TEST(BucketPlan, ParseRejectsOtherModelsAndDamagedText) {
  const std::vector<std::int64_t> numels = {10, 20, 30};
  const std::string header = "buckets of 3 parameters, 60 elements:";
  const auto message = [&](const std::string& text) {
    return message_of<UsageError>([&] { dist::BucketPlan::parse(text, numels); });
  };
  EXPECT_THAT(message("buckets of 3 parameters, 61 elements: 2 1 0"), HasSubstr(header));
  EXPECT_THAT(message(""), HasSubstr(header));
  EXPECT_THAT(message(header + " 2 1"), HasSubstr("parameter 0 is in no bucket"));
  EXPECT_THAT(message(header + " 2 1 | 0 2"), HasSubstr("parameter 2 twice"));
  EXPECT_THAT(message(header + " 2 1 3 0"), HasSubstr("found \"3\", expected a parameter number below 3"));
  EXPECT_THAT(message(header + " 2 1 -0"), HasSubstr("found \"-0\""));
  EXPECT_THAT(message(header + " 2 1 0x"), HasSubstr("found \"0x\""));
  EXPECT_THAT(message(header + " 2 1 | | 0"), HasSubstr("empty bucket"));
  EXPECT_THAT(message(header + " 2 1 0 |"), HasSubstr("empty bucket"));
}

TEST(BucketPlan, RejectsInvalidArguments) {
  const std::vector<std::int64_t> none, empty = {1, 0}, one = {1};
  const std::vector<double> times = {1, 2}, not_a_number = {std::nan("")};
  EXPECT_THROW(dist::BucketPlan::by_order(none), UsageError);
  EXPECT_THROW(dist::BucketPlan::by_order(empty), UsageError);
  EXPECT_THROW(dist::BucketPlan::by_order(one, {.bucket_bytes = 10, .last_bytes = 11}), UsageError);
  EXPECT_THROW(dist::BucketPlan::by_order(one, {.bucket_bytes = 10, .last_bytes = 0}), UsageError);
  EXPECT_THROW(dist::BucketPlan::by_ready_times(one, times), UsageError);
  EXPECT_THROW(dist::BucketPlan::by_ready_times(one, not_a_number), UsageError);
}

/// Checks the numbers in docs/overlap.md.
TEST(BucketPlan, HasSmallLastBucketForResNet18) {
  std::vector<std::int64_t> numels;
  for (const nn::NamedParameter& parameter : models::resnet18().parameters())
    numels.push_back(parameter.variable.value().numel());
  const auto near = [](double x) { return ::testing::DoubleNear(x, 0.005); };
  EXPECT_THAT(
      megabytes_of(dist::BucketPlan::by_order(numels)),
      ElementsAre(near(9.46), near(9.44), near(9.97), near(7.08), near(6.63), near(1.66), near(0.45)));
}

}  // namespace
}  // namespace convoy::testing
