#include "comm/gradient_synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "comm/pytorch_plan.h"
#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "models/models.h"
#include "tests/comm/rank_threads.h"
#include "tests/support/errors.h"
#include "tests/support/fake_communicator.h"

namespace convoy::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

NamedParameter parameter(const std::string& name, std::vector<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {name, Variable(Tensor::from(values, {count}, Device::cpu({.threads = 1})), true)};
}

std::vector<double> gradient(const NamedParameter& parameter) {
  return parameter.variable.grad().to_vector<double>();
}

constexpr double kTinyBuckets = 256.0 / (1 << 20);  // MiB: one slice each

TEST(GradientSynchronizer, SumsWhatTheRanksHave) {
  on_ranks(3, [](Communicator& comm) {
    const NamedParameter a = parameter("a", {1, 2}), b = parameter("b", {3});
    GradientSynchronizer gradients({a, b}, comm);
    for (int update = 0; update < 4; ++update) {
      const double factor = comm.rank() + 1 + update;
      backward(sum(a.variable * factor) + sum(b.variable * (10 * factor)));
      gradients.finish();
      const double total = 6 + 3 * update;
      EXPECT_THAT(gradient(a), Each(total));
      EXPECT_THAT(gradient(b), Each(10 * total));
      EXPECT_THAT(gradients.missing().here, IsEmpty());
      a.variable.consume_grad();
      b.variable.consume_grad();
    }
    comm.finish();
  });
}

TEST(GradientSynchronizer, AParameterUsedSomewhereIsSteppedEverywhere) {
  on_ranks(3, [](Communicator& comm) {
    const NamedParameter everywhere = parameter("everywhere", {1}), one = parameter("one", {1, 2}),
                         nowhere = parameter("nowhere", {1});
    GradientSynchronizer gradients({everywhere, one, nowhere}, comm, {.bucket_mb = kTinyBuckets});
    for (int update = 0; update < 4; ++update) {
      Variable loss = sum(everywhere.variable * 1.0);
      if (comm.rank() == 1) loss = loss + sum(one.variable * (update + 5.0));
      backward(loss);
      gradients.finish();
      EXPECT_THAT(gradient(everywhere), ElementsAre(3));
      EXPECT_THAT(gradient(one), Each(update + 5));
      EXPECT_TRUE(one.variable.has_fresh_grad());
      EXPECT_FALSE(nowhere.variable.has_fresh_grad());
      EXPECT_THAT(gradients.missing().everywhere, ElementsAre("nowhere"));
      if (comm.rank() == 1) {
        EXPECT_THAT(gradients.missing().here, ElementsAre("nowhere"));
      } else {
        EXPECT_THAT(gradients.missing().here, ElementsAre("one", "nowhere"));
      }
      for (const NamedParameter& each : {everywhere, one, nowhere}) each.variable.consume_grad();
    }
    comm.finish();
  });
}

TEST(GradientSynchronizer, ARankWithNothingToComputeAddsZeros) {
  on_ranks(2, [](Communicator& comm) {
    const NamedParameter a = parameter("a", {1, 2});
    GradientSynchronizer gradients({a}, comm);
    for (int update = 0; update < 3; ++update) {  // what was summed before must not be summed again
      if (comm.rank() == 1) backward(sum(a.variable * 7.0));
      gradients.finish();
      EXPECT_THAT(gradient(a), Each(7));
      EXPECT_TRUE(a.variable.has_fresh_grad());
    }
    gradients.finish();  // nobody
    EXPECT_FALSE(a.variable.has_fresh_grad());
    EXPECT_THAT(gradients.missing().everywhere, ElementsAre("a"));
    comm.finish();
  });
}

TEST(GradientSynchronizer, LaunchesInTheLastMicroBatchOnly) {
  FakeCommunicator comm(0, 2);
  const NamedParameter a = parameter("a", {1}), early = parameter("early", {1});
  GradientSynchronizer gradients({a, early}, comm, {.bucket_mb = kTinyBuckets});
  gradients.begin_update(false);
  backward(sum(a.variable * 2.0) + sum(early.variable * 3.0));
  EXPECT_THAT(comm.launches(), IsEmpty());
  gradients.begin_update(false);
  backward(sum(a.variable * 20.0), {.accumulate = true});
  EXPECT_THAT(comm.launches(), IsEmpty());
  gradients.begin_update(true);
  backward(sum(a.variable * 200.0), {.accumulate = true});
  gradients.finish();
  EXPECT_EQ(comm.launches().size(), 2U);
  EXPECT_THAT(gradient(a), ElementsAre(222));
  EXPECT_THAT(gradient(early), ElementsAre(3));
  EXPECT_THAT(gradients.missing().here, IsEmpty());
}

TEST(GradientSynchronizer, LaunchesInTheOrderOfThePlanWhateverBackwardsIs) {
  // By registration b goes first, but backward completes a first.
  const NamedParameter a = parameter("a", {1}), b = parameter("b", {1, 2});
  FakeCommunicator comm(0, 2, [&](const FakeCommunicator::Launch&, View) {
    EXPECT_TRUE(b.variable.has_fresh_grad());  // nothing goes before it is complete
  });
  GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = kTinyBuckets, .deterministic = true});
  const Variable first = sum(b.variable * 1.0);
  backward(first + sum(a.variable * 2.0));
  ASSERT_EQ(comm.launches().size(), 2U);
  EXPECT_EQ(comm.launches()[0].data, b.variable.grad().view().data);
  EXPECT_EQ(comm.launches()[1].data, a.variable.grad().view().data);
  gradients.finish();
}

TEST(GradientSynchronizer, PlansAnewFromMeasuredTimesOnce) {
  on_ranks(3, [](Communicator& comm) {
    // Registered in the order in which backward completes them: the reverse of what the first plan assumes.
    const NamedParameter a = parameter("a", {1}), b = parameter("b", {2}), c = parameter("c", {3});
    GradientSynchronizer gradients({a, b, c}, comm, {.bucket_mb = kTinyBuckets});
    const std::string by_order = gradients.plan().text();
    EXPECT_EQ(by_order, "buckets of 3 parameters, 3 elements: 2 | 1 | 0");
    for (int update = 0; update < 4; ++update) {
      EXPECT_EQ(gradients.settled(), update > 1);
      EXPECT_EQ(gradients.plan().text(),
                update > 1 ? "buckets of 3 parameters, 3 elements: 0 | 1 | 2" : by_order);
      const Variable of_c = sum(c.variable * 4.0);
      const Variable of_b = sum(b.variable * 3.0);
      const Variable of_a = sum(a.variable * 2.0);
      backward(of_c + of_b + of_a);
      gradients.finish();
      EXPECT_THAT(gradient(a), ElementsAre(6)) << update;  // also where they have just moved
      EXPECT_THAT(gradient(b), ElementsAre(9)) << update;
      EXPECT_THAT(gradient(c), ElementsAre(12)) << update;
      for (const NamedParameter& each : {a, b, c}) EXPECT_TRUE(each.variable.has_fresh_grad());
    }
    comm.finish();
  });
}

TEST(GradientSynchronizer, KeepsAPlanThatIsGivenOrDeterministic) {
  const std::string plan = "buckets of 2 parameters, 2 elements: 0 1";
  for (const bool given : {false, true}) {
    FakeCommunicator comm(0, 2);
    const NamedParameter a = parameter("a", {1}), b = parameter("b", {2});
    GradientSynchronizer gradients({a, b}, comm,
                                   {.bucket_mb = kTinyBuckets,
                                    .deterministic = !given,
                                    .plan = given ? std::optional(plan) : std::nullopt});
    EXPECT_TRUE(gradients.settled());
    const std::string before = gradients.plan().text();
    EXPECT_EQ(before, given ? plan : "buckets of 2 parameters, 2 elements: 1 | 0");
    for (int update = 0; update < 4; ++update) {
      const Variable of_b = sum(b.variable * 1.0);
      backward(of_b + sum(a.variable * 2.0));
      gradients.finish();
    }
    EXPECT_EQ(gradients.plan().text(), before);
  }
}

TEST(GradientSynchronizer, RoundsToAHalfTypeOnceBeforeTheSumAndOnceAfter) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    on_ranks(3, [&](Communicator& comm) {
      const NamedParameter a = parameter("a", {1, 1, 1});
      GradientSynchronizer gradients({a}, comm, {.grad_dtype = dtype});
      const std::vector<double> factors = {1.001, 0.3337, 100.07};
      const double share = comm.rank() + 1;
      const Variable weights(Tensor::from(factors, {3}, a.variable.device()));
      backward(sum(a.variable * weights * share));
      gradients.finish();
      const auto rounded = [&](double x) {
        return static_cast<double>(dtype == DType::bf16 ? static_cast<float>(bfloat16(static_cast<float>(x)))
                                                        : static_cast<float>(float16(static_cast<float>(x))));
      };
      std::vector<double> expected;
      for (const double factor : factors)
        expected.push_back(rounded(rounded(factor) + rounded(2 * factor) + rounded(3 * factor)));
      EXPECT_EQ(gradient(a), expected);
      comm.finish();
    });
  }
}

TEST(GradientSynchronizer, RefusesGradientsThatCannotBeSummedRight) {
  FakeCommunicator comm(0, 2);
  const NamedParameter a = parameter("a", {1}), b = parameter("b", {1});
  {
    GradientSynchronizer gradients({a, b}, comm);
    backward(sum(a.variable * 1.0));
    EXPECT_THAT(message_of<UsageError>([&] { backward(sum(a.variable * 2.0), {.accumulate = true}); }),
                HasSubstr("a second gradient of a"));
  }
  {
    GradientSynchronizer gradients({a, b}, comm);
    a.variable.set_value(a.variable.value().clone());
    EXPECT_THAT(message_of<UsageError>([&] { backward(sum(a.variable * 1.0)); }),
                HasSubstr("the gradient of a has left its bucket"));
  }
  const NamedParameter other{"other", Variable(Tensor::zeros({1}, DType::f32, Device::cpu()), true)};
  EXPECT_THAT(message_of<UsageError>([&] {
                GradientSynchronizer({a, other}, comm);
              }),
              HasSubstr("other is f32 on cpu, expected f64 on cpu"));
  EXPECT_THROW(GradientSynchronizer({}, comm), UsageError);
  EXPECT_THROW(GradientSynchronizer({a}, comm, {.bucket_mb = 0}), UsageError);
  EXPECT_THROW(GradientSynchronizer({a}, comm, {.grad_dtype = DType::f32}), UsageError);
  EXPECT_THROW(GradientSynchronizer({a}, comm, {.plan = "buckets"}), UsageError);
}

TEST(GradientSynchronizer, LetsGoOfTheParametersWhenItGoes) {
  FakeCommunicator comm(0, 2);
  const NamedParameter a = parameter("a", {1});
  { const GradientSynchronizer gradients({a}, comm); }
  backward(sum(a.variable * 2.0));
  EXPECT_THAT(comm.launches(), IsEmpty());
  EXPECT_THAT(gradient(a), ElementsAre(2));
}

TEST(GradientSynchronizer, ForgetsAnUpdateThatNeverRan) {
  FakeCommunicator comm(0, 2);
  const NamedParameter a = parameter("a", {1}), b = parameter("b", {1});
  GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = kTinyBuckets});
  const Variable of_a = sum(a.variable * 1.0);
  backward(sum(b.variable * 1.0));
  EXPECT_EQ(comm.launches().size(), 1U);
  gradients.abandon_update();
  backward(of_a + sum(b.variable * 5.0));
  gradients.finish();
  EXPECT_EQ(comm.launches().size(), 3U);
  EXPECT_THAT(gradient(b), ElementsAre(5));
}

TEST(GradientSynchronizer, AnErrorOfTheCommunicatorEndsBackward) {
  FakeCommunicator comm(0, 2, [&](const FakeCommunicator::Launch& launch, View) {
    if (launch.collective.number == 1) comm.abort("rank 1 is gone");
  });
  const NamedParameter a = parameter("a", {1}), b = parameter("b", {1}), c = parameter("c", {1});
  GradientSynchronizer gradients({a, b, c}, comm, {.bucket_mb = kTinyBuckets, .deterministic = true});
  const Variable of_a = sum(a.variable * 1.0), of_b = sum(b.variable * 1.0);
  EXPECT_EQ(message_of<PeerError>([&] { backward(of_a + of_b + sum(c.variable * 1.0)); }), "rank 1 is gone");
  EXPECT_EQ(comm.launches().size(), 2U);
  EXPECT_EQ(message_of<PeerError>([&] { gradients.finish(); }), "rank 1 is gone");
}

TEST(GradientSynchronizer, AnErrorOfEnqueuedWorkComesOutOfEachOfTheThreePlaces) {
  std::promise<void> launched;
  on_ranks(2, [&](Communicator& comm) {
    if (comm.rank() == 1) {
      launched.get_future().wait();
      comm.abort("rank 1 is gone");
      return;
    }
    const NamedParameter a = parameter("a", {1});
    GradientSynchronizer gradients({a}, comm);
    backward(sum(a.variable * 1.0));
    launched.set_value();
    const auto message = HasSubstr("rank 1 is gone");
    EXPECT_THAT(message_of<PeerError>([&] { gradients.finish(); }), message);
    gradients.abandon_update();
    EXPECT_THAT(message_of<PeerError>([&] { gradients.begin_update(true); }), message);
    EXPECT_THAT(message_of<PeerError>([&] { backward(sum(a.variable * 1.0)); }), message);
  });
}

TEST(GradientSynchronizer, ARankThatFailsInBackwardStopsTheOthers) {
  const auto begin = std::chrono::steady_clock::now();
  on_ranks(3, [](Communicator& comm) {
    const NamedParameter a = parameter("a", {1}), b = parameter("b", {1});
    const auto train = [&] {
      GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = kTinyBuckets});
      for (int update = 0; update < 5; ++update) {
        const Variable of_a = sum(a.variable * 1.0);
        backward(sum(b.variable * 1.0));  // its bucket is on its way
        if (comm.rank() == 1 && update == 3) throw DataError("a damaged image");
        backward(of_a);
        gradients.finish();
      }
    };
    if (comm.rank() == 1) {
      EXPECT_THROW(train(), DataError);
    } else {
      EXPECT_THAT(message_of<PeerError>(train), HasSubstr("rank 1 left in the middle of an update"));
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));  // no deadline was waited for
}

/// The figures of docs/overlap.md, in a real backward.
TEST(GradientSynchronizer, ResNet18sBucketsGoWhileBackwardRuns) {
  const models::Options options{.device = Device::cpu()};
  const Model model = models::resnet18(options);
  const std::vector<NamedParameter> parameters = model.parameters();
  std::vector<std::int64_t> numels;
  for (const NamedParameter& each : parameters) numels.push_back(each.variable.value().numel());

  const BucketPlan pytorch = pytorch_plan(numels, std::vector<double>(numels.size(), 0));

  std::vector<std::size_t> incomplete;  // gradients, at each launch
  FakeCommunicator comm(0, 2, [&](const FakeCommunicator::Launch&, View) {
    incomplete.push_back(
        static_cast<std::size_t>(std::count_if(parameters.begin(), parameters.end(), [](const auto& each) {
          return !each.variable.has_fresh_grad();
        })));
  });
  GradientSynchronizer gradients(parameters, comm);
  const Tensor images = Tensor::full({2, 32, 32, 3}, 0.5, DType::f32, options.device);
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{1, 7}, {2}, options.device);
  for (int update = 0; update < 3; ++update) {
    SCOPED_TRACE(update);
    for (const NamedParameter& each : parameters) each.variable.consume_grad();
    comm.clear();
    incomplete.clear();
    backward(cross_entropy_sum(model(images, {.training = true}), labels));
    const std::size_t launched_in_backward = comm.launches().size();
    const BucketPlan plan = gradients.plan();  // finish() may make another
    gradients.finish();

    ASSERT_GE(comm.launches().size(), plan.buckets.size());  // the new plan is broadcast after them
    EXPECT_EQ(launched_in_backward, plan.buckets.size());
    std::size_t exposed = 0;
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      const bool is_last = b + 1 == plan.buckets.size();
      const std::int64_t elements = plan.buckets[b].numel + (is_last ? gradients.flag_count() : 0);
      EXPECT_EQ(comm.launches()[b].collective.op, CollectiveOp::all_reduce);
      EXPECT_EQ(comm.launches()[b].bytes, static_cast<std::size_t>(elements) * 4) << "bucket " << b;
      if (incomplete[b] == 0) exposed += comm.launches()[b].bytes;
    }
    EXPECT_GT(incomplete.front(), 50U);  // of 62: almost all of backward is yet to run
    EXPECT_LE(exposed * 10, static_cast<std::size_t>(pytorch.buckets.back().numel) * 4);
    EXPECT_LT(exposed, 460000U);
    EXPECT_EQ(gradients.settled(), update > 0);
  }
}

}  // namespace
}  // namespace convoy::testing
