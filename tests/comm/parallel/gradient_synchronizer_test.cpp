#include "convoy/comm/parallel/gradient_synchronizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <future>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/models/models.h"
#include "tests/comm/rank_threads.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/fake_communicator.h"

namespace convoy::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

nn::NamedParameter parameter(const std::string& name, std::vector<double> values) {
  const auto count = static_cast<std::int64_t>(values.size());
  return {name, Variable(Tensor::from(values, {count}, DeviceContext::create_cpu({.threads = 1})), true)};
}

std::vector<double> gradient(const nn::NamedParameter& parameter) {
  return parameter.variable.grad().to_vector<double>();
}

constexpr double kSliceBuckets = 256.0 / (1 << 20);  // MiB: one slice each

TEST(GradientSynchronizer, SumsGradientsOfAllRanks) {
  on_ranks(3, [](dist::Communicator& comm) {
    const nn::NamedParameter a = parameter("a", {1, 2}), b = parameter("b", {3});
    dist::GradientSynchronizer gradients({a, b}, comm);
    for (int step = 0; step < 4; ++step) {
      const double factor = comm.rank() + 1 + step;
      backward(sum(a.variable * factor) + sum(b.variable * (10 * factor)));
      gradients.finish();
      const double total = 6 + 3 * step;
      EXPECT_THAT(gradient(a), Each(total));
      EXPECT_THAT(gradient(b), Each(10 * total));
      EXPECT_THAT(gradients.missing().here, IsEmpty());
      a.variable.consume_grad();
      b.variable.consume_grad();
    }
    comm.finish();
  });
}

TEST(GradientSynchronizer, GradientOnOneRankIsNewOnAllRanks) {
  on_ranks(3, [](dist::Communicator& comm) {
    const nn::NamedParameter everywhere = parameter("everywhere", {1}), one = parameter("one", {1, 2}),
                             nowhere = parameter("nowhere", {1});
    dist::GradientSynchronizer gradients({everywhere, one, nowhere}, comm, {.bucket_mb = kSliceBuckets});
    for (int step = 0; step < 4; ++step) {
      Variable loss = sum(everywhere.variable * 1.0);
      if (comm.rank() == 1) loss = loss + sum(one.variable * (step + 5.0));
      backward(loss);
      gradients.finish();
      EXPECT_THAT(gradient(everywhere), ElementsAre(3));
      EXPECT_THAT(gradient(one), Each(step + 5));
      EXPECT_TRUE(one.variable.has_new_grad());
      EXPECT_FALSE(nowhere.variable.has_new_grad());
      EXPECT_THAT(gradients.missing().everywhere, ElementsAre("nowhere"));
      if (comm.rank() == 1) {
        EXPECT_THAT(gradients.missing().here, ElementsAre("nowhere"));
      } else {
        EXPECT_THAT(gradients.missing().here, ElementsAre("one", "nowhere"));
      }
      for (const nn::NamedParameter& each : {everywhere, one, nowhere}) each.variable.consume_grad();
    }
    comm.finish();
  });
}

TEST(GradientSynchronizer, RankWithoutSamplesAddsZeros) {
  on_ranks(2, [](dist::Communicator& comm) {
    const nn::NamedParameter a = parameter("a", {1, 2});
    dist::GradientSynchronizer gradients({a}, comm);
    for (int step = 0; step < 3; ++step) {  // sums of earlier steps must not be added again
      if (comm.rank() == 1) backward(sum(a.variable * 7.0));
      gradients.finish();
      EXPECT_THAT(gradient(a), Each(7));
      EXPECT_TRUE(a.variable.has_new_grad());
    }
    gradients.finish();  // no rank has a gradient
    EXPECT_FALSE(a.variable.has_new_grad());
    EXPECT_THAT(gradients.missing().everywhere, ElementsAre("a"));
    comm.finish();
  });
}

TEST(GradientSynchronizer, LaunchesOnlyInLastMicroBatch) {
  FakeCommunicator comm(0, 2);
  const nn::NamedParameter a = parameter("a", {1}), early = parameter("early", {1});
  dist::GradientSynchronizer gradients({a, early}, comm, {.bucket_mb = kSliceBuckets});
  gradients.begin_step(false);
  backward(sum(a.variable * 2.0) + sum(early.variable * 3.0));
  EXPECT_THAT(comm.launches(), IsEmpty());
  gradients.begin_step(false);
  backward(sum(a.variable * 20.0), {.accumulate = true});
  EXPECT_THAT(comm.launches(), IsEmpty());
  gradients.begin_step(true);
  backward(sum(a.variable * 200.0), {.accumulate = true});
  gradients.finish();
  EXPECT_EQ(comm.launches().size(), 2U);
  EXPECT_THAT(gradient(a), ElementsAre(222));
  EXPECT_THAT(gradient(early), ElementsAre(3));
  EXPECT_THAT(gradients.missing().here, IsEmpty());
}

TEST(GradientSynchronizer, LaunchesInPlanOrderForAnyBackwardOrder) {
  // The plan by registration launches b first, but the gradient of a is ready first.
  const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {1, 2});
  FakeCommunicator comm(0, 2, [&](const FakeCommunicator::Launch&, View) {
    EXPECT_TRUE(b.variable.has_new_grad());  // no bucket is launched before its gradients are ready
  });
  dist::GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = kSliceBuckets, .deterministic = true});
  const Variable first = sum(b.variable * 1.0);
  backward(first + sum(a.variable * 2.0));
  ASSERT_EQ(comm.launches().size(), 2U);
  EXPECT_EQ(comm.launches()[0].data, b.variable.grad().view().data);
  EXPECT_EQ(comm.launches()[1].data, a.variable.grad().view().data);
  gradients.finish();
}

TEST(GradientSynchronizer, RebuildsBucketsOnceFromMeasuredTimes) {
  on_ranks(3, [](dist::Communicator& comm) {
    // The gradients become ready in registration order, which is the reverse of the first plan.
    const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {2}), c = parameter("c", {3});
    dist::GradientSynchronizer gradients({a, b, c}, comm, {.bucket_mb = kSliceBuckets});
    const std::string by_order = gradients.plan().text();
    EXPECT_EQ(by_order, "buckets of 3 parameters, 3 elements: 2 | 1 | 0");
    for (int step = 0; step < 4; ++step) {
      EXPECT_EQ(gradients.bucket_plan_final(), step > 1);
      EXPECT_EQ(gradients.plan().text(),
                step > 1 ? "buckets of 3 parameters, 3 elements: 0 | 1 | 2" : by_order);
      const Variable of_c = sum(c.variable * 4.0);
      const Variable of_b = sum(b.variable * 3.0);
      const Variable of_a = sum(a.variable * 2.0);
      backward(of_c + of_b + of_a);
      gradients.finish();
      EXPECT_THAT(gradient(a), ElementsAre(6)) << step;  // also right after the buckets were rebuilt
      EXPECT_THAT(gradient(b), ElementsAre(9)) << step;
      EXPECT_THAT(gradient(c), ElementsAre(12)) << step;
      for (const nn::NamedParameter& each : {a, b, c}) EXPECT_TRUE(each.variable.has_new_grad());
    }
    comm.finish();
  });
}

TEST(GradientSynchronizer, KeepsGivenOrDeterministicPlan) {
  const std::string plan = "buckets of 2 parameters, 2 elements: 0 1";
  for (const bool given : {false, true}) {
    FakeCommunicator comm(0, 2);
    const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {2});
    dist::GradientSynchronizer gradients({a, b}, comm,
                                         {.bucket_mb = kSliceBuckets,
                                          .deterministic = !given,
                                          .plan = given ? std::optional(plan) : std::nullopt});
    EXPECT_TRUE(gradients.bucket_plan_final());
    const std::string before = gradients.plan().text();
    EXPECT_EQ(before, given ? plan : "buckets of 2 parameters, 2 elements: 1 | 0");
    for (int step = 0; step < 4; ++step) {
      const Variable of_b = sum(b.variable * 1.0);
      backward(of_b + sum(a.variable * 2.0));
      gradients.finish();
    }
    EXPECT_EQ(gradients.plan().text(), before);
  }
}

TEST(GradientSynchronizer, RoundsToLowPrecisionOnceBeforeAndOnceAfterSum) {
  for (const DType dtype : {DType::bf16, DType::f16}) {
    on_ranks(3, [&](dist::Communicator& comm) {
      const nn::NamedParameter a = parameter("a", {1, 1, 1});
      dist::GradientSynchronizer gradients({a}, comm, {.grad_dtype = dtype});
      const std::vector<double> factors = {1.001, 0.3337, 100.07};
      const double factor_of_rank = comm.rank() + 1;
      const Variable weights(Tensor::from(factors, {3}, a.variable.context()));
      backward(sum(a.variable * weights * factor_of_rank));
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

TEST(GradientSynchronizer, RejectsInvalidParametersAndOptions) {
  FakeCommunicator comm(0, 2);
  const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {1});
  {
    dist::GradientSynchronizer gradients({a, b}, comm);
    backward(sum(a.variable * 1.0));
    EXPECT_THAT(message_of<UsageError>([&] { backward(sum(a.variable * 2.0), {.accumulate = true}); }),
                HasSubstr("a second gradient of a"));
  }
  {
    dist::GradientSynchronizer gradients({a, b}, comm);
    a.variable.set_value(a.variable.value().clone());
    EXPECT_THAT(message_of<UsageError>([&] { backward(sum(a.variable * 1.0)); }),
                HasSubstr("the gradient of a is not stored in its bucket"));
  }
  const nn::NamedParameter other{"other", Variable(Tensor::zeros({1}, DType::f32, Device::cpu()), true)};
  EXPECT_THAT(message_of<UsageError>([&] {
                dist::GradientSynchronizer({a, other}, comm);
              }),
              HasSubstr("other is f32 on cpu, expected f64 on cpu"));
  EXPECT_THROW(dist::GradientSynchronizer({}, comm), UsageError);
  EXPECT_THROW(dist::GradientSynchronizer({a}, comm, {.bucket_mb = 0}), UsageError);
  EXPECT_THROW(dist::GradientSynchronizer({a}, comm, {.grad_dtype = DType::f32}), UsageError);
  EXPECT_THROW(dist::GradientSynchronizer({a}, comm, {.plan = "buckets"}), UsageError);
}

TEST(GradientSynchronizer, DestructorRemovesHooks) {
  FakeCommunicator comm(0, 2);
  const nn::NamedParameter a = parameter("a", {1});
  { const dist::GradientSynchronizer gradients({a}, comm); }
  backward(sum(a.variable * 2.0));
  EXPECT_THAT(comm.launches(), IsEmpty());
  EXPECT_THAT(gradient(a), ElementsAre(2));
}

TEST(GradientSynchronizer, AbandonStepResetsCounters) {
  FakeCommunicator comm(0, 2);
  const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {1});
  dist::GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = kSliceBuckets});
  const Variable of_a = sum(a.variable * 1.0);
  backward(sum(b.variable * 1.0));
  EXPECT_EQ(comm.launches().size(), 1U);
  gradients.abandon_step();
  backward(of_a + sum(b.variable * 5.0));
  gradients.finish();
  EXPECT_EQ(comm.launches().size(), 3U);
  EXPECT_THAT(gradient(b), ElementsAre(5));
}

TEST(GradientSynchronizer, CommunicatorErrorEndsBackward) {
  FakeCommunicator comm(0, 2, [&](const FakeCommunicator::Launch& launch, View) {
    if (launch.collective.number == 1) comm.abort("rank 1 failed");
  });
  const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {1}), c = parameter("c", {1});
  dist::GradientSynchronizer gradients({a, b, c}, comm, {.bucket_mb = kSliceBuckets, .deterministic = true});
  const Variable of_a = sum(a.variable * 1.0), of_b = sum(b.variable * 1.0);
  EXPECT_EQ(message_of<PeerError>([&] { backward(of_a + of_b + sum(c.variable * 1.0)); }), "rank 1 failed");
  EXPECT_EQ(comm.launches().size(), 2U);
  EXPECT_EQ(message_of<PeerError>([&] { gradients.finish(); }), "rank 1 failed");
}

TEST(GradientSynchronizer, BeginStepBackwardAndFinishThrowErrorsOfEnqueuedWork) {
  std::promise<void> launched;
  on_ranks(2, [&](dist::Communicator& comm) {
    if (comm.rank() == 1) {
      launched.get_future().wait();
      comm.abort("rank 1 failed");
      return;
    }
    const nn::NamedParameter a = parameter("a", {1});
    dist::GradientSynchronizer gradients({a}, comm);
    backward(sum(a.variable * 1.0));
    launched.set_value();
    const auto message = HasSubstr("rank 1 failed");
    EXPECT_THAT(message_of<PeerError>([&] { gradients.finish(); }), message);
    gradients.abandon_step();
    EXPECT_THAT(message_of<PeerError>([&] { gradients.begin_step(true); }), message);
    EXPECT_THAT(message_of<PeerError>([&] { backward(sum(a.variable * 1.0)); }), message);
  });
}

TEST(GradientSynchronizer, RankThatFailsInBackwardStopsPeers) {
  const auto begin = std::chrono::steady_clock::now();
  on_ranks(3, [](dist::Communicator& comm) {
    const nn::NamedParameter a = parameter("a", {1}), b = parameter("b", {1});
    const auto train = [&] {
      dist::GradientSynchronizer gradients({a, b}, comm, {.bucket_mb = kSliceBuckets});
      for (int step = 0; step < 5; ++step) {
        const Variable of_a = sum(a.variable * 1.0);
        backward(sum(b.variable * 1.0));  // its bucket is in flight
        if (comm.rank() == 1 && step == 3) throw DataError("a damaged image");
        backward(of_a);
        gradients.finish();
      }
    };
    if (comm.rank() == 1) {
      EXPECT_THROW(train(), DataError);
    } else {
      EXPECT_THAT(message_of<PeerError>(train), HasSubstr("rank 1 left in the middle of a step"));
    }
  });
  EXPECT_LT(std::chrono::steady_clock::now() - begin,
            std::chrono::seconds(5));  // no rank waited for its timeout
}

/// Checks the numbers in docs/overlap.md with a real backward.
TEST(GradientSynchronizer, LaunchesBucketsOfResNet18DuringBackward) {
  const models::Options options{.device = Device::cpu()};
  const models::Model model = models::resnet18(options);
  const std::vector<nn::NamedParameter> parameters = model.parameters();
  constexpr std::size_t kPytorchLastBytes = 8739072;  // of PyTorch's rule; tests/bench/overlap_model_test.py

  std::vector<std::size_t> incomplete;  // the number of gradients that are not ready at each launch
  FakeCommunicator comm(0, 2, [&](const FakeCommunicator::Launch&, View) {
    incomplete.push_back(
        static_cast<std::size_t>(std::count_if(parameters.begin(), parameters.end(), [](const auto& each) {
          return !each.variable.has_new_grad();
        })));
  });
  dist::GradientSynchronizer gradients(parameters, comm);
  const Tensor images = Tensor::full({2, 32, 32, 3}, 0.5, DType::f32, options.device);
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{1, 7}, {2}, options.device);
  for (int step = 0; step < 3; ++step) {
    SCOPED_TRACE(step);
    for (const nn::NamedParameter& each : parameters) each.variable.consume_grad();
    comm.clear();
    incomplete.clear();
    backward(cross_entropy_sum(model(images, {.training = true}), labels));
    const std::size_t launched_in_backward = comm.launches().size();
    const dist::BucketPlan plan = gradients.plan();  // finish() may replace it
    gradients.finish();

    ASSERT_GE(comm.launches().size(), plan.buckets.size());  // the broadcast of the new plan follows
    EXPECT_EQ(launched_in_backward, plan.buckets.size());
    std::size_t exposed = 0;
    for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
      const bool is_last = b + 1 == plan.buckets.size();
      const std::int64_t elements = plan.buckets[b].numel + (is_last ? gradients.flag_count() : 0);
      EXPECT_EQ(comm.launches()[b].collective.op, dist::CollectiveOp::all_reduce);
      EXPECT_EQ(comm.launches()[b].bytes, static_cast<std::size_t>(elements) * 4) << "bucket " << b;
      if (incomplete[b] == 0) exposed += comm.launches()[b].bytes;
    }
    EXPECT_GT(incomplete.front(), 50U);  // of 62: almost all of backward still has to run
    EXPECT_LE(exposed * 10, kPytorchLastBytes);
    EXPECT_LT(exposed, 460000U);
    EXPECT_EQ(gradients.bucket_plan_final(), step > 0);
  }
}

}  // namespace
}  // namespace convoy::testing
