// When buckets travelled, by the synchronizer's own marks: always their order, never how long they took.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "comm/gradient_synchronizer.h"
#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "models/models.h"
#include "tests/comm/rank_threads.h"
#include "tests/support/fake_communicator.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr double kTinyBuckets = 256.0 / (1 << 20);  // MiB: one slice each

NamedParameter parameter(const std::string& name, std::int64_t count) {
  return {name, Variable(Tensor::full({count}, 1, DType::f64, Device::cpu({.threads = 1})), true)};
}

/// One after the other on the communicator's stream, between two marks of the compute stream.
void expect_in_order(const std::vector<BucketTime>& times, double from_ms, double to_ms) {
  for (std::size_t i = 0; i < times.size(); ++i) {
    EXPECT_EQ(times[i].number, static_cast<int>(i) + 1);
    EXPECT_GE(times[i].begin_ms, from_ms);
    EXPECT_GE(times[i].end_ms, times[i].begin_ms);
    from_ms = times[i].end_ms;
  }
  EXPECT_LE(from_ms, to_ms);
}

TEST(BucketTimes, AreThoseOfTheCommunicatorsStream) {
  on_ranks(2, [](Communicator& comm) {
    const NamedParameter a = parameter("a", 1), b = parameter("b", 2);
    GradientSynchronizer gradients({a, b}, comm,
                                   {.bucket_mb = kTinyBuckets, .deterministic = true, .time_buckets = true});
    TimeMark begin(comm.device()), between(comm.device()), end(comm.device());
    begin.record();
    EXPECT_THAT(gradients.bucket_times(begin), IsEmpty());
    for (int update = 0; update < 3; ++update) {
      begin.record();
      const Variable of_a = sum(a.variable * 1.0);
      backward(sum(b.variable * 1.0));
      const std::vector<BucketTime> first = gradients.bucket_times(begin);  // waits for it
      between.record();
      ASSERT_EQ(first.size(), 1U);
      expect_in_order(first, 0, elapsed_ms(begin, between));
      backward(of_a);
      gradients.finish();
      end.record();
      const std::vector<BucketTime> times = gradients.bucket_times(begin);
      ASSERT_EQ(times.size(), 2U);
      expect_in_order(times, 0, elapsed_ms(begin, end));
      EXPECT_EQ(times[0].end_ms, first[0].end_ms);
      EXPECT_GE(times[1].begin_ms, elapsed_ms(begin, between));
      for (const BucketTime& time : gradients.bucket_times(end)) EXPECT_LE(time.end_ms, 0);  // before it
    }
    comm.finish();
  });
}

TEST(BucketTimes, AreOfTheLatestUpdateWhateverItsPlan) {
  FakeCommunicator comm(0, 2);
  // The first plan takes them in reverse, and a bucket each. Backward comes to the small ones first, so that
  // in the second plan these fill one.
  const NamedParameter one = parameter("one", 32), large = parameter("large", 64), two = parameter("two", 32);
  GradientSynchronizer gradients({one, large, two}, comm,
                                 {.bucket_mb = 2 * kTinyBuckets, .time_buckets = true});
  TimeMark begin(comm.device());
  std::vector<std::size_t> counts;
  for (int update = 0; update < 4; ++update) {
    comm.clear();
    begin.record();
    const Variable of_large = sum(large.variable * 1.0), of_two = sum(two.variable * 1.0);
    backward(of_large + of_two + sum(one.variable * 1.0));
    const std::size_t buckets = gradients.plan().buckets.size();  // finish() may make another plan
    gradients.finish();
    const std::vector<BucketTime> times = gradients.bucket_times(begin);
    ASSERT_EQ(times.size(), buckets);
    for (std::size_t i = 0; i < buckets; ++i) EXPECT_EQ(times[i].bytes, comm.launches()[i].bytes);
    counts.push_back(buckets);
  }
  EXPECT_THAT(counts, ElementsAre(3, 3, 2, 2));
}

TEST(BucketTimes, OfHalfTypesCountTheBytesThatTravel) {
  for (const bool halved : {false, true}) {
    FakeCommunicator comm(0, 2);
    const NamedParameter a = parameter("a", 100);
    GradientSynchronizer gradients(
        {a}, comm, {.grad_dtype = halved ? std::optional(DType::bf16) : std::nullopt, .time_buckets = true});
    TimeMark begin(comm.device());
    begin.record();
    gradients.finish();
    ASSERT_EQ(gradients.bucket_times(begin).size(), 1U);
    EXPECT_EQ(gradients.bucket_times(begin)[0].bytes, comm.launches()[0].bytes);
    EXPECT_LT(gradients.bucket_times(begin)[0].bytes, halved ? 500U : 2000U);
    EXPECT_GE(gradients.bucket_times(begin)[0].bytes, halved ? 200U : 800U);
  }
}

TEST(BucketTimes, AreNotTakenUnlessAskedFor) {
  FakeCommunicator comm(0, 2);
  const NamedParameter a = parameter("a", 1);
  GradientSynchronizer gradients({a}, comm);
  gradients.finish();
  TimeMark now(comm.device());
  now.record();
  EXPECT_THROW(gradients.bucket_times(now), UsageError);
}

/// The overlap itself, in a real backward: the images' gradient is the last thing that it computes, and then
/// buckets have already arrived. The other rank has no samples, and adds zeros.
TEST(BucketTimes, OfResNet18LieWithinItsBackward) {
  const models::Options options{.input = {16, 16, 3}, .device = Device::cpu({.threads = 1})};
  const Model model = models::resnet18(options);
  std::vector<NamedParameter> zeros;
  for (const NamedParameter& each : model.parameters())
    zeros.push_back(
        {each.name, Variable(Tensor::zeros(each.variable.shape(), DType::f32, options.device), true)});

  const auto with_samples = [&](Communicator& comm) {
    GradientSynchronizer gradients(model.parameters(), comm, {.time_buckets = true});
    TimeMark begin(options.device), inside(options.device), end(options.device);
    const Variable images(Tensor::full({1, 16, 16, 3}, 0.5, DType::f32, options.device), true);
    const Tensor labels = Tensor::from(std::vector<std::int32_t>{7}, {1}, options.device);
    std::vector<BucketTime> arrived;
    images.on_grad_ready([&] {
      arrived = gradients.bucket_times(begin);
      inside.record();
    });
    begin.record();
    backward(cross_entropy_sum(model(images, {.training = true}), labels));
    end.record();
    gradients.finish();

    const std::vector<BucketTime> times = gradients.bucket_times(begin);
    ASSERT_EQ(times.size(), gradients.plan().buckets.size());
    ASSERT_GE(arrived.size() + 1, times.size());  // all but the last one, or that one, too
    ASSERT_GE(arrived.size(), 5U);
    expect_in_order(arrived, 0, elapsed_ms(begin, inside));
    EXPECT_LE(times[0].end_ms, elapsed_ms(begin, end));
    EXPECT_EQ(times[0].end_ms, arrived[0].end_ms);  // the same transfer, not another one later
  };
  const auto without = [&](Communicator& comm) { GradientSynchronizer(zeros, comm).finish(); };
  on_ranks(2,
           [&](Communicator& comm) {
             if (comm.rank() == 0) {
               with_samples(comm);
             } else {
               without(comm);
             }
             comm.finish();
           },
           {.timeout_seconds = 100});  // of a busy machine, under a sanitizer
}

}  // namespace
}  // namespace convoy::testing
