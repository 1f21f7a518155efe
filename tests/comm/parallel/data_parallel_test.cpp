// Tests that N ranks, each with a shard of every batch, compute the same as one rank with the full batch,
// without batch norms and with synchronized ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/comm/parallel/sync_batch_norm.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/base/random.h"
#include "convoy/models/models.h"
#include "tests/comm/rank_threads.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;

/// Parameters and buffers by name.
using State = std::map<std::string, std::vector<double>>;

/// The number of samples of each rank in one micro-batch.
using ShardSizes = std::vector<std::int64_t>;

std::int64_t sum_of(const ShardSizes& sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0});
}

struct ShardingPlan {
  bool has_norms = false;
  std::vector<ShardSizes> micro_batches;  // of each step
  double bucket_mb = 0.05;                // a few buckets for the half MiB of lenet

  int steps() const { return has_norms ? 20 : 4; }
  std::int64_t batch() const {
    std::int64_t sum = 0;
    for (const ShardSizes& sizes : micro_batches) sum += sum_of(sizes);
    return sum;
  }
};

/// LeNet, or a model with three batch norms, the last of which adds a residual.
class Net {
 public:
  Net(bool has_norms, std::uint64_t seed) : device_(DeviceContext::create_cpu({.threads = 1})) {
    if (has_norms) {
      side_ = 4;
      channels_ = 2;
      classes_ = 3;
      norms_ = with_norms();
      norms_->initialize(seed);
      norms_->to(DType::f64);
    } else {
      lenet_ = models::lenet({.seed = seed, .device = device_}).to(DType::f64);
    }
    optimizer_ = make_optimizer("sgd", optim::decay_groups(root().parameters(), 1e-3));
  }

  nn::Module& root() { return norms_ ? *norms_ : lenet_->root(); }

  /// Computes the gradients of samples [begin, end) of the step's batch. The loss is their sum divided by
  /// `batch`.
  void backward_of(int step, std::int64_t begin, std::int64_t end, std::int64_t batch, bool accumulate) {
    const Random random{.seed = 3, .purpose = RandomPurpose::test};
    std::vector<double> pixels;
    std::vector<std::int32_t> labels;
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const auto key = static_cast<std::uint32_t>(step * 1000 + sample);
      const auto label = static_cast<std::int32_t>(key % static_cast<std::uint32_t>(classes_));
      for (std::int64_t i = 0; i < side_ * side_ * channels_; ++i)
        pixels.push_back(to_uniform(random.words(static_cast<std::uint64_t>(i), key)[0]) - 0.5 +
                         (norms_ ? label : 0));
      labels.push_back(label);
    }
    const std::int64_t count = end - begin;
    const Variable images(Tensor::from(pixels, {count, side_, side_, channels_}, device_));
    const Variable logits = root()(images, {.training = true});
    backward(cross_entropy_sum(logits, Tensor::from(labels, {count}, device_)) / static_cast<double>(batch),
             {.accumulate = accumulate});
  }
  void step() { optimizer_->step(0.05); }

  State state() {
    State all;
    for (const nn::NamedParameter& parameter : root().parameters())
      all[parameter.name] = parameter.variable.value().to_vector<double>();
    for (const nn::NamedBuffer& buffer : root().buffers())
      all[buffer.name] = buffer.tensor.to_vector<double>();
    return all;
  }

 private:
  std::shared_ptr<nn::Sequential> with_norms() const {
    const nn::Conv2dLayerOptions same{.padding = 1, .bias = false};
    const auto relu = [] { return std::make_shared<nn::Activation>(nn::ActivationKind::relu); };
    const auto block = std::make_shared<nn::ResidualBlock>(
        std::vector<nn::Layer>{{"conv1", std::make_shared<nn::Conv2d>(4, 4, same)},
                               {"bn1", std::make_shared<nn::BatchNorm2d>(4)},
                               {"relu", relu()},
                               {"conv2", std::make_shared<nn::Conv2d>(4, 4, same)},
                               {"bn2", std::make_shared<nn::BatchNorm2d>(4)}},
        nullptr);
    return std::make_shared<nn::Sequential>(
        std::vector<nn::Layer>{{"conv", std::make_shared<nn::Conv2d>(channels_, 4, same)},
                               {"bn", std::make_shared<nn::BatchNorm2d>(4)},
                               {"relu", relu()},
                               {"block", block},
                               {"pool", std::make_shared<nn::GlobalAvgPool2d>()},
                               {"fc", std::make_shared<nn::Linear>(4, classes_)}});
  }

  DeviceContext device_;
  std::int64_t side_ = 32, channels_ = 3, classes_ = 10;
  std::optional<models::Model> lenet_;
  std::shared_ptr<nn::Sequential> norms_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

/// Trains on the shards of `rank`; without `gradients`, on whole batches.
State train_shards(int rank, const ShardingPlan& plan, Net& net, dist::GradientSynchronizer* gradients) {
  for (int step = 0; step < plan.steps(); ++step) {
    std::int64_t first = 0;
    bool accumulate = false;
    for (const ShardSizes& sizes : plan.micro_batches) {
      std::int64_t begin = first, end = first + sum_of(sizes);
      first = end;
      if (gradients != nullptr) {
        begin += std::accumulate(sizes.begin(), sizes.begin() + rank, std::int64_t{0});
        end = begin + sizes[static_cast<std::size_t>(rank)];
        gradients->begin_step(&sizes == &plan.micro_batches.back());
      }
      if (begin == end && !plan.has_norms)
        continue;  // batch norms exchange statistics of an empty batch, too
      net.backward_of(step, begin, end, plan.batch(), std::exchange(accumulate, true));
    }
    if (gradients != nullptr) gradients->finish();
    net.step();
  }
  return net.state();
}

std::vector<State> train_together(const ShardingPlan& plan) {
  std::vector<State> results(plan.micro_batches.front().size());
  on_ranks(static_cast<int>(results.size()), [&](dist::Communicator& comm) {
    const std::unique_ptr<dist::Communicator> norm_comm = comm.split(0);
    Net net(plan.has_norms, static_cast<std::uint64_t>(comm.rank() + 1));
    dist::broadcast_model(comm, net.root());
    EXPECT_EQ(dist::synchronize_batch_norms(net.root(), *norm_comm), plan.has_norms ? 3 : 0);
    {
      dist::GradientSynchronizer gradients(net.root().parameters(), comm, {.bucket_mb = plan.bucket_mb});
      results[static_cast<std::size_t>(comm.rank())] = train_shards(comm.rank(), plan, net, &gradients);
    }
    norm_comm->finish();
    comm.finish();
  });
  return results;
}

/// Returns the maximum difference relative to the maximum value of its tensor.
double distance(const State& a, const State& b) {
  double maximum = 0;
  for (const auto& [name, values] : a) {
    double difference = 0, largest = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference = std::max(difference, std::abs(values[i] - b.at(name)[i]));
      largest = std::max(largest, std::abs(values[i]));
    }
    maximum = std::max(maximum, difference / largest);
  }
  return maximum;
}

class DataParallel : public ::testing::TestWithParam<ShardingPlan> {};

TEST_P(DataParallel, EqualsOneRank) {
  Net net(GetParam().has_norms, 1);
  const State alone = train_shards(0, GetParam(), net, nullptr);
  const std::vector<State> together = train_together(GetParam());
  ASSERT_EQ(alone.size(),
            GetParam().has_norms ? 3 + 2 + 4 * 3U : 10U);  // three filters, two of fc, four of each norm
  for (const State& replica : together) EXPECT_EQ(replica, together.front());
  EXPECT_LE(distance(alone, together.front()), 1e-9);
  EXPECT_EQ(train_together(GetParam()), together);
}

const auto plan_name = [](const auto& plan) { return "Plan" + std::to_string(plan.index); };
// Some ranks, among them rank 0, have no samples.
INSTANTIATE_TEST_SUITE_P(
    Ranks, DataParallel,
    ::testing::Values(ShardingPlan{.micro_batches = {{7}}}, ShardingPlan{.micro_batches = {{3, 4}}},
                      ShardingPlan{.micro_batches = {{1, 1}, {1, 1}, {1, 2}}},
                      ShardingPlan{.micro_batches = {{2, 2, 2}, {2, 2, 3}}},
                      ShardingPlan{.micro_batches = {{2, 2, 3}}, .bucket_mb = 10},
                      ShardingPlan{.micro_batches = {{0, 1, 1, 1}}},
                      ShardingPlan{.micro_batches = {{1, 2, 2, 2}}, .bucket_mb = 0.0005},
                      ShardingPlan{.micro_batches = {{0, 0, 1, 0, 1, 0, 1, 1}, {1, 1, 1, 1, 1, 1, 1, 2}}},
                      ShardingPlan{.micro_batches = {{0, 0, 1, 0, 0, 1, 0, 1}}}),
    plan_name);
INSTANTIATE_TEST_SUITE_P(SynchronizedBatchNorms, DataParallel,
                         ::testing::Values(ShardingPlan{true, {{9}}, 0.001},
                                           ShardingPlan{true, {{5, 4}}, 0.001},
                                           ShardingPlan{true, {{4, 0, 3}}, 0.001},
                                           ShardingPlan{true, {{0, 1, 1, 5}}, 0.001},
                                           ShardingPlan{true, {{3, 2}, {2, 0}}, 0.001},
                                           ShardingPlan{true, {{3, 3}, {0, 0}, {1, 2}}, 0.001}),
                         plan_name);

/// Averages statistics of two channels and returns the resulting means and variances of each rank.
std::vector<std::vector<double>> averaged(const std::vector<double>& weights,
                                          const std::vector<std::vector<double>>& statistics, DType dtype) {
  std::vector<std::vector<double>> results(weights.size());
  on_ranks(static_cast<int>(weights.size()), [&](dist::Communicator& comm) {
    const auto rank = static_cast<std::size_t>(comm.rank());
    nn::Sequential model(
        {{"flat", std::make_shared<nn::Flatten>()}, {"bn", std::make_shared<nn::BatchNorm2d>(2)}});
    model.to(dtype);
    const auto tensors = model.buffers();
    for (std::size_t t = 0; t < 2; ++t)
      tensors[t].tensor.copy_from(
          Tensor::from(std::vector<double>{statistics[rank][2 * t], statistics[rank][2 * t + 1]}, {2},
                       Device::cpu())
              .to(dtype));
    dist::average_running_statistics(comm, model, weights[rank]);
    for (const nn::NamedBuffer& buffer : model.buffers())
      for (const double value : buffer.tensor.to(DType::f64).to_vector<double>())
        results[rank].push_back(value);
    comm.finish();
  });
  return results;
}

TEST(RunningStatistics, CombineToThoseOfAllSamples) {
  // (mean, mean, variance, variance) of ranks with 3, 1, 0 and 4 samples. The rank without samples is
  // ignored.
  const std::vector<std::vector<double>> statistics = {
      {1, 10, 2, 0.5}, {5, 10, 6, 0.5}, {1e9, 1e9, 1e9, 1e9}, {-2, 10, 1, 4.5}};
  // Channel 0: mean (3 + 5 - 8) / 8 = 0, variance (3 (2 + 1) + (6 + 25) + 4 (1 + 4)) / 8 = 60 / 8.
  const auto expected = ElementsAre(::testing::DoubleNear(0, 1e-15), ::testing::DoubleEq(10),
                                    ::testing::DoubleEq(7.5), ::testing::DoubleEq(2.5));
  for (const auto& found : averaged({3, 1, 0, 4}, statistics, DType::f64)) EXPECT_THAT(found, expected);
}

TEST(RunningStatistics, AreUnchangedIfEqualOnAllRanks) {
  const std::vector<double> equal = {0.1F, -0.7F, 0.3F, 1.1F};
  for (const auto& found : averaged({3, 1, 7}, {equal, equal, equal}, DType::f32)) EXPECT_EQ(found, equal);
}

}  // namespace
}  // namespace convoy::testing
