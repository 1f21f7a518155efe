// Tests of the bucket times that GradientSynchronizer records. They check the order, never the durations.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/models/models.h"
#include "tests/comm/rank_threads.h"
#include "tests/testing/support/fake_communicator.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kTinyBuckets = 256.0 / (1 << 20);  // MiB: one slice each

nn::NamedParameter ones(const std::string& name, std::int64_t count) {
  return {name,
          Variable(Tensor::full({count}, 1, DType::f64, DeviceContext::create_cpu({.threads = 1})), true)};
}

/// Expects that the spans follow each other and are within [from_ms, to_ms].
void expect_in_order(const std::vector<dist::BucketTime>& times, double from_ms, double to_ms) {
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].number, static_cast<int>(i) + 1);
    EXPECT_GE(times[i].begin_ms, from_ms);
    EXPECT_GE(times[i].end_ms, times[i].begin_ms);
    from_ms = times[i].end_ms;
  }
  EXPECT_LE(from_ms, to_ms);
}

TEST(BucketTimes, AreMeasuredOnCommunicatorStream) {
  on_ranks(2, [](dist::Communicator& comm) {
    const nn::NamedParameter a = ones("a", 1), b = ones("b", 2);
    dist::GradientSynchronizer gradients(
        {a, b}, comm, {.bucket_mb = kTinyBuckets, .deterministic = true, .time_buckets = true});
    Event begin = Event::timed(comm.context().stream()), between = Event::timed(comm.context().stream()),
          end = Event::timed(comm.context().stream());
    begin.record();
    EXPECT_THAT(gradients.bucket_times(begin), IsEmpty());
    for (int step = 0; step < 3; ++step) {
      begin.record();
      const Variable of_a = sum(a.variable * 1.0);
      backward(sum(b.variable * 1.0));
      const std::vector<dist::BucketTime> first =
          gradients.bucket_times(begin);  // blocks until it is reduced
      between.record();
      ASSERT_EQ(first.size(), 1U);
      expect_in_order(first, 0, elapsed_ms(begin, between));
      backward(of_a);
      gradients.finish();
      end.record();
      const std::vector<dist::BucketTime> times = gradients.bucket_times(begin);
      ASSERT_EQ(times.size(), 2U);
      expect_in_order(times, 0, elapsed_ms(begin, end));
      EXPECT_EQ(times[0].end_ms, first[0].end_ms);
      EXPECT_GE(times[1].begin_ms, elapsed_ms(begin, between));
      for (const dist::BucketTime& time : gradients.bucket_times(end)) EXPECT_LE(time.end_ms, 0);
    }
    comm.finish();
  });
}

TEST(BucketTimes, BelongToLatestStepAfterPlanChange) {
  FakeCommunicator comm(0, 2);
  // The first plan has one bucket per parameter, in reverse order of registration. The gradients of the small
  // parameters are ready first, so the second plan puts both into one bucket.
  const nn::NamedParameter one = ones("one", 32), large = ones("large", 64), two = ones("two", 32);
  dist::GradientSynchronizer gradients({one, large, two}, comm,
                                       {.bucket_mb = 2 * kTinyBuckets, .time_buckets = true});
  Event begin = Event::timed(comm.context().stream());
  std::vector<std::size_t> counts;
  for (int step = 0; step < 4; ++step) {
    comm.clear();
    begin.record();
    const Variable of_large = sum(large.variable * 1.0), of_two = sum(two.variable * 1.0);
    backward(of_large + of_two + sum(one.variable * 1.0));
    const std::size_t buckets = gradients.plan().buckets.size();  // finish() may replace the plan
    gradients.finish();
    const std::vector<dist::BucketTime> times = gradients.bucket_times(begin);
    ASSERT_EQ(times.size(), buckets);
    for (std::size_t i = 0; i < buckets; ++i) EXPECT_EQ(times[i].bytes, comm.launches()[i].bytes);
    counts.push_back(buckets);
  }
  EXPECT_THAT(counts, ElementsAre(3, 3, 2, 2));
}

TEST(BucketTimes, CountBytesInSendType) {
  for (const bool low_precision : {false, true}) {
    FakeCommunicator comm(0, 2);
    const nn::NamedParameter a = ones("a", 100);
    dist::GradientSynchronizer gradients(
        {a}, comm,
        {.grad_dtype = low_precision ? std::optional(DType::bf16) : std::nullopt, .time_buckets = true});
    Event begin = Event::timed(comm.context().stream());
    begin.record();
    gradients.finish();
    ASSERT_EQ(gradients.bucket_times(begin).size(), 1U);
    EXPECT_EQ(gradients.bucket_times(begin)[0].bytes, comm.launches()[0].bytes);
    EXPECT_LT(gradients.bucket_times(begin)[0].bytes, low_precision ? 500U : 2000U);
    EXPECT_GE(gradients.bucket_times(begin)[0].bytes, low_precision ? 200U : 800U);
  }
}

TEST(BucketTimes, ThrowWithoutOption) {
  FakeCommunicator comm(0, 2);
  const nn::NamedParameter a = ones("a", 1);
  dist::GradientSynchronizer gradients({a}, comm);
  gradients.finish();
  Event now = Event::timed(comm.context().stream());
  now.record();
  EXPECT_THROW(gradients.bucket_times(now), UsageError);
}

/// Checks the overlap in a real backward. The gradient of the images is the last one that backward computes.
/// By then, all buckets but the last are reduced. The other rank has no samples and adds zeros.
TEST(BucketTimes, OfResNet18AreWithinBackward) {
  const models::Options options{.input = {16, 16, 3}, .device = DeviceContext::create_cpu({.threads = 1})};
  const models::Model model = models::resnet18(options);
  std::vector<nn::NamedParameter> zeros;
  for (const nn::NamedParameter& each : model.parameters())
    zeros.push_back(
        {each.name, Variable(Tensor::zeros(each.variable.shape(), DType::f32, options.device), true)});

  const auto with_samples = [&](dist::Communicator& comm) {
    dist::GradientSynchronizer gradients(model.parameters(), comm, {.time_buckets = true});
    Event begin = Event::timed(options.device.stream()), inside = Event::timed(options.device.stream()),
          end = Event::timed(options.device.stream());
    const Variable images(Tensor::full({1, 16, 16, 3}, 0.5, DType::f32, options.device), true);
    const Tensor labels = Tensor::from(std::vector<std::int32_t>{7}, {1}, options.device);
    std::vector<dist::BucketTime> reduced;
    images.on_grad_ready([&] {
      reduced = gradients.bucket_times(begin);
      inside.record();
    });
    begin.record();
    backward(cross_entropy_sum(model(images, {.training = true}), labels));
    end.record();
    gradients.finish();

    const std::vector<dist::BucketTime> times = gradients.bucket_times(begin);
    ASSERT_EQ(times.size(), gradients.plan().buckets.size());
    ASSERT_GE(reduced.size() + 1, times.size());  // the last one may be reduced or not
    ASSERT_GE(reduced.size(), 5U);
    expect_in_order(reduced, 0, elapsed_ms(begin, inside));
    EXPECT_LE(times[0].end_ms, elapsed_ms(begin, end));
    EXPECT_EQ(times[0].end_ms, reduced[0].end_ms);  // the same all-reduce, not a later one
  };
  const auto without = [&](dist::Communicator& comm) { dist::GradientSynchronizer(zeros, comm).finish(); };
  on_ranks(2,
           [&](dist::Communicator& comm) {
             if (comm.rank() == 0) {
               with_samples(comm);
             } else {
               without(comm);
             }
             comm.finish();
           },
           {.timeout_seconds = 100});  // enough for a busy machine under a sanitizer
}

}  // namespace
}  // namespace convoy::testing
