// Tests that N ranks, each with a shard of every batch, compute the same as one rank with the full batch.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/base/random.h"
#include "convoy/models/models.h"
#include "tests/comm/rank_threads.h"

namespace convoy::testing {
namespace {

using Parameters = std::vector<std::vector<double>>;

struct Plan {
  std::int64_t batch = 7;
  std::int64_t micro_batches = 1;
  double bucket_mb = 0.05;  // a few buckets for the half MiB of lenet
  int steps = 4;
};

class LeNet {
 public:
  explicit LeNet(std::uint64_t seed)
      : device_(DeviceContext::create_cpu({.threads = 1})),
        model_(models::lenet({.seed = seed, .device = device_}).to(DType::f64)),
        optimizer_(model_.parameters(), {.momentum = 0.9, .weight_decay = 1e-3}) {}

  models::Model& model() { return model_; }

  /// Computes the gradients of samples [begin, end) of the step's batch. The loss is their sum divided by
  /// `batch`.
  void backward_of(int step, std::int64_t begin, std::int64_t end, std::int64_t batch, bool accumulate) {
    const Random random{.seed = 3, .purpose = RandomPurpose::test};
    constexpr std::int64_t kPixels = 32 * 32 * 3;
    std::vector<double> pixels;
    std::vector<std::int32_t> labels;
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const auto key = static_cast<std::uint32_t>(step * 1000 + sample);
      for (std::int64_t i = 0; i < kPixels; ++i)
        pixels.push_back(to_uniform(random.words(static_cast<std::uint64_t>(i), key)[0]) - 0.5);
      labels.push_back(static_cast<std::int32_t>(key % 10));
    }
    const std::int64_t count = end - begin;
    const Variable logits = model_(Tensor::from(pixels, {count, 32, 32, 3}, device_), {.training = true});
    backward(cross_entropy_sum(logits, Tensor::from(labels, {count}, device_)) / static_cast<double>(batch),
             {.accumulate = accumulate});
  }

  void apply(int step) { optimizer_.step(0.05 / (1 + step)); }

  Parameters values() const {
    Parameters all;
    for (const nn::NamedParameter& parameter : model_.parameters())
      all.push_back(parameter.variable.value().to_vector<double>());
    return all;
  }

 private:
  DeviceContext device_;
  models::Model model_;
  optim::Sgd optimizer_;
};

Parameters train_alone(const Plan& plan) {
  LeNet net(1);
  for (int step = 0; step < plan.steps; ++step) {
    net.backward_of(step, 0, plan.batch, plan.batch, false);
    net.apply(step);
  }
  return net.values();
}

std::vector<Parameters> train_together(int ranks, const Plan& plan) {
  std::vector<Parameters> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](dist::Communicator& comm) {
    LeNet net(static_cast<std::uint64_t>(comm.rank() + 1));
    dist::broadcast_model(comm, net.model().root());
    dist::GradientSynchronizer gradients(net.model().parameters(), comm, {.bucket_mb = plan.bucket_mb});
    const std::int64_t begin = plan.batch * comm.rank() / ranks, end = plan.batch * (comm.rank() + 1) / ranks;
    for (int step = 0; step < plan.steps; ++step) {
      const std::int64_t micro_batches = std::min(plan.micro_batches, end - begin);
      for (std::int64_t k = 0; k < micro_batches; ++k) {
        gradients.begin_step(k + 1 == micro_batches);
        net.backward_of(step, begin + (end - begin) * k / micro_batches,
                        begin + (end - begin) * (k + 1) / micro_batches, plan.batch, k > 0);
      }
      gradients.finish();
      net.apply(step);
    }
    results[static_cast<std::size_t>(comm.rank())] = net.values();
    comm.finish();
  });
  return results;
}

/// Returns the maximum difference relative to the maximum value of its parameter.
double distance(const Parameters& a, const Parameters& b) {
  double maximum = 0;
  for (std::size_t p = 0; p < a.size(); ++p) {
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      difference = std::max(difference, std::abs(a[p][i] - b[p][i]));
      largest = std::max(largest, std::abs(a[p][i]));
    }
    maximum = std::max(maximum, difference / largest);
  }
  return maximum;
}

class DataParallel : public ::testing::TestWithParam<std::tuple<int, Plan>> {};

TEST_P(DataParallel, EqualsOneRank) {
  const auto& [ranks, plan] = GetParam();
  const Parameters alone = train_alone(plan);
  const std::vector<Parameters> together = train_together(ranks, plan);
  ASSERT_FALSE(together.front().empty());
  for (const Parameters& replica : together) EXPECT_EQ(replica, together.front());
  EXPECT_LE(distance(alone, together.front()), 1e-9);
  EXPECT_EQ(train_together(ranks, plan), together);
}

std::string run_name(const ::testing::TestParamInfo<std::tuple<int, Plan>>& run) {
  const auto& [ranks, plan] = run.param;
  return "Of" + std::to_string(ranks) + "Batch" + std::to_string(plan.batch) + "In" +
         std::to_string(plan.micro_batches) + "Buckets" + std::to_string(std::lround(plan.bucket_mb * 1e4));
}

// With batches of 3, some ranks, among them rank 0, have no samples. Batches of 7 and 13 give uneven shards.
INSTANTIATE_TEST_SUITE_P(
    Ranks, DataParallel,
    ::testing::Values(std::tuple(1, Plan{}), std::tuple(2, Plan{}), std::tuple(2, Plan{.micro_batches = 3}),
                      std::tuple(3, Plan{.batch = 13, .micro_batches = 2}),
                      std::tuple(3, Plan{.bucket_mb = 10}), std::tuple(4, Plan{.batch = 3}),
                      std::tuple(4, Plan{.bucket_mb = 0.0005}),
                      std::tuple(8, Plan{.batch = 13, .micro_batches = 2}), std::tuple(8, Plan{.batch = 3})),
    run_name);

}  // namespace
}  // namespace convoy::testing
