// N ranks with a share of each batch compute what one rank computes with the whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "comm/broadcast.h"
#include "comm/gradient_synchronizer.h"
#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "kernels/random.h"
#include "models/models.h"
#include "tests/comm/rank_threads.h"

namespace convoy::testing {
namespace {

using Parameters = std::vector<std::vector<double>>;

struct Plan {
  std::int64_t batch = 7;
  std::int64_t micro_batches = 1;
  double bucket_mb = 0.05;  // a few buckets of lenet's half MiB
  int updates = 4;
};

class LeNet {
 public:
  explicit LeNet(std::uint64_t seed)
      : device_(Device::cpu({.threads = 1})),
        model_(models::lenet({.seed = seed, .device = device_}).to(DType::f64)),
        optimizer_(model_.parameters(), {.momentum = 0.9, .weight_decay = 1e-3}) {}

  Model& model() { return model_; }

  /// Gradients of samples [begin, end) of the update's batch; the loss is their part of the batch's mean.
  void backward_of(int update, std::int64_t begin, std::int64_t end, std::int64_t batch, bool accumulate) {
    const Random random{.seed = 3, .purpose = RandomPurpose::test};
    constexpr std::int64_t kPixels = 32 * 32 * 3;
    std::vector<double> pixels;
    std::vector<std::int32_t> labels;
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const auto key = static_cast<std::uint32_t>(update * 1000 + sample);
      for (std::int64_t i = 0; i < kPixels; ++i)
        pixels.push_back(to_uniform(random.words(static_cast<std::uint64_t>(i), key)[0]) - 0.5);
      labels.push_back(static_cast<std::int32_t>(key % 10));
    }
    const std::int64_t count = end - begin;
    const Variable logits = model_(Tensor::from(pixels, {count, 32, 32, 3}, device_), {.training = true});
    backward(cross_entropy_sum(logits, Tensor::from(labels, {count}, device_)) / static_cast<double>(batch),
             {.accumulate = accumulate});
  }

  void step(int update) { optimizer_.step(0.05 / (1 + update)); }

  Parameters values() const {
    Parameters all;
    for (const NamedParameter& parameter : model_.parameters())
      all.push_back(parameter.variable.value().to_vector<double>());
    return all;
  }

 private:
  Device device_;
  Model model_;
  Sgd optimizer_;
};

Parameters train_alone(const Plan& plan) {
  LeNet net(1);
  for (int update = 0; update < plan.updates; ++update) {
    net.backward_of(update, 0, plan.batch, plan.batch, false);
    net.step(update);
  }
  return net.values();
}

std::vector<Parameters> train_together(int ranks, const Plan& plan) {
  std::vector<Parameters> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](Communicator& comm) {
    LeNet net(static_cast<std::uint64_t>(comm.rank() + 1));
    broadcast_model(comm, net.model().root());
    GradientSynchronizer gradients(net.model().parameters(), comm, {.bucket_mb = plan.bucket_mb});
    const std::int64_t begin = plan.batch * comm.rank() / ranks, end = plan.batch * (comm.rank() + 1) / ranks;
    for (int update = 0; update < plan.updates; ++update) {
      const std::int64_t parts = std::min(plan.micro_batches, end - begin);
      for (std::int64_t k = 0; k < parts; ++k) {
        gradients.begin_update(k + 1 == parts);
        net.backward_of(update, begin + (end - begin) * k / parts, begin + (end - begin) * (k + 1) / parts,
                        plan.batch, k > 0);
      }
      gradients.finish();
      net.step(update);
    }
    results[static_cast<std::size_t>(comm.rank())] = net.values();
    comm.finish();
  });
  return results;
}

/// The largest difference, by the largest value of its parameter.
double distance(const Parameters& a, const Parameters& b) {
  double worst = 0;
  for (std::size_t p = 0; p < a.size(); ++p) {
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < a[p].size(); ++i) {
      difference = std::max(difference, std::abs(a[p][i] - b[p][i]));
      largest = std::max(largest, std::abs(a[p][i]));
    }
    worst = std::max(worst, difference / largest);
  }
  return worst;
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

std::string name_of_run(const ::testing::TestParamInfo<std::tuple<int, Plan>>& run) {
  const auto& [ranks, plan] = run.param;
  return "Of" + std::to_string(ranks) + "Batch" + std::to_string(plan.batch) + "In" +
         std::to_string(plan.micro_batches) + "Buckets" + std::to_string(std::lround(plan.bucket_mb * 1e4));
}

// Batches of 3 leave ranks without samples, among them rank 0; 7 and 13 are uneven shares.
INSTANTIATE_TEST_SUITE_P(
    Ranks, DataParallel,
    ::testing::Values(std::tuple(1, Plan{}), std::tuple(2, Plan{}), std::tuple(2, Plan{.micro_batches = 3}),
                      std::tuple(3, Plan{.batch = 13, .micro_batches = 2}),
                      std::tuple(3, Plan{.bucket_mb = 10}), std::tuple(4, Plan{.batch = 3}),
                      std::tuple(4, Plan{.bucket_mb = 0.0005}),
                      std::tuple(8, Plan{.batch = 13, .micro_batches = 2}), std::tuple(8, Plan{.batch = 3})),
    name_of_run);

}  // namespace
}  // namespace convoy::testing
