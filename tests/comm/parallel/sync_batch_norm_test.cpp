// Tests that N ranks with synchronized batch norms compute the same as one rank with the full batch.
#include "convoy/comm/parallel/sync_batch_norm.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <tuple>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/base/random.h"
#include "tests/comm/rank_threads.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Pointwise;

constexpr int kSteps = 20;
constexpr int kImageSide = 4, kClasses = 3;

/// Parameters and buffers by name.
using State = std::map<std::string, std::vector<double>>;

/// A model with three batch norms, the last of which adds a residual.
class Net {
 public:
  explicit Net(std::uint64_t seed) : device_(DeviceContext::create_cpu({.threads = 1})) {
    const nn::Conv2dLayerOptions same{.padding = 1, .bias = false};
    const auto relu = [] { return std::make_shared<nn::Activation>(nn::ActivationKind::relu); };
    const auto block = std::make_shared<nn::ResidualBlock>(
        std::vector<nn::Sequential::Named>{{"conv1", std::make_shared<nn::Conv2d>(4, 4, same)},
                                           {"bn1", std::make_shared<nn::BatchNorm2d>(4)},
                                           {"relu", relu()},
                                           {"conv2", std::make_shared<nn::Conv2d>(4, 4, same)},
                                           {"bn2", std::make_shared<nn::BatchNorm2d>(4)}},
        nullptr);
    root_ = std::make_shared<nn::Sequential>(
        std::vector<nn::Sequential::Named>{{"conv", std::make_shared<nn::Conv2d>(2, 4, same)},
                                           {"bn", std::make_shared<nn::BatchNorm2d>(4)},
                                           {"relu", relu()},
                                           {"block", block},
                                           {"pool", std::make_shared<nn::GlobalAvgPool2d>()},
                                           {"fc", std::make_shared<nn::Linear>(4, kClasses)}});
    root_->initialize(seed);
    root_->to(DType::f64);
    optimizer_ = make_optimizer("sgd", optim::decay_groups(root_->parameters(), 1e-3));
  }

  nn::Module& root() { return *root_; }

  void backward_of(int step, std::int64_t begin, std::int64_t end, std::int64_t batch, bool accumulate) {
    const Random random{.seed = 3, .purpose = RandomPurpose::test};
    constexpr std::int64_t kValues = kImageSide * kImageSide * 2;
    std::vector<double> pixels;
    std::vector<std::int32_t> labels;
    for (std::int64_t sample = begin; sample < end; ++sample) {
      const auto key = static_cast<std::uint32_t>(step * 1000 + sample);
      for (std::int64_t i = 0; i < kValues; ++i)
        pixels.push_back(to_uniform(random.words(static_cast<std::uint64_t>(i), key)[0]) +
                         static_cast<double>(key % kClasses));
      labels.push_back(static_cast<std::int32_t>(key % kClasses));
    }
    const std::int64_t count = end - begin;
    const Variable logits = (*root_)(
        Variable(Tensor::from(pixels, {count, kImageSide, kImageSide, 2}, device_)), {.training = true});
    backward(cross_entropy_sum(logits, Tensor::from(labels, {count}, device_)) / static_cast<double>(batch),
             {.accumulate = accumulate});
  }
  void step() { optimizer_->step(0.05); }

  State state() const {
    State all;
    for (const nn::NamedParameter& parameter : root_->parameters())
      all[parameter.name] = parameter.variable.value().to_vector<double>();
    for (const nn::NamedBuffer& buffer : root_->buffers())
      all[buffer.name] = buffer.tensor.to_vector<double>();
    return all;
  }

 private:
  DeviceContext device_;
  std::shared_ptr<nn::Sequential> root_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

/// The number of samples of each rank in one micro-batch.
using ShardSizes = std::vector<std::int64_t>;
/// The micro-batches of each step.
using Plan = std::vector<ShardSizes>;

std::int64_t sum_of(const ShardSizes& sizes) {
  std::int64_t sum = 0;
  for (const std::int64_t size : sizes) sum += size;
  return sum;
}

State train(int rank, const Plan& plan, Net& net, dist::GradientSynchronizer* gradients) {
  std::int64_t batch = 0;
  for (const ShardSizes& sizes : plan) batch += sum_of(sizes);
  for (int step = 0; step < kSteps; ++step) {
    std::int64_t first = 0;
    for (std::size_t k = 0; k < plan.size(); ++k) {
      std::int64_t begin = first, end = first + sum_of(plan[k]);
      if (gradients != nullptr) {
        for (int r = 0; r < rank; ++r) begin += plan[k][static_cast<std::size_t>(r)];
        end = begin + plan[k][static_cast<std::size_t>(rank)];
        gradients->begin_step(k + 1 == plan.size());
      }
      net.backward_of(step, begin, end, batch, k > 0);
      first += sum_of(plan[k]);
    }
    if (gradients != nullptr) gradients->finish();
    net.step();
  }
  return net.state();
}

State train_alone(const Plan& plan) {
  Net net(1);
  return train(0, plan, net, nullptr);
}

std::vector<State> train_together(const Plan& plan) {
  const auto ranks = static_cast<int>(plan.front().size());
  std::vector<State> results(plan.front().size());
  on_ranks(ranks, [&](dist::Communicator& comm) {
    const std::unique_ptr<dist::Communicator> norm_comm = comm.split(0);
    Net net(static_cast<std::uint64_t>(comm.rank() + 1));
    dist::broadcast_model(comm, net.root());
    EXPECT_EQ(dist::synchronize_batch_norms(net.root(), *norm_comm), 3);
    {
      dist::GradientSynchronizer gradients(net.root().parameters(), comm, {.bucket_mb = 0.001});
      results[static_cast<std::size_t>(comm.rank())] = train(comm.rank(), plan, net, &gradients);
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

class SyncBatchNorm : public ::testing::TestWithParam<Plan> {};

TEST_P(SyncBatchNorm, EqualsOneRank) {
  const State alone = train_alone(GetParam());
  const std::vector<State> together = train_together(GetParam());
  ASSERT_EQ(alone.size(), 3 + 2 + 4 * 3U);  // three filters, two of fc, four of each norm
  for (const State& replica : together) EXPECT_EQ(replica, together.front());
  EXPECT_LE(distance(alone, together.front()), 1e-9);
  EXPECT_EQ(train_together(GetParam()), together);
}

INSTANTIATE_TEST_SUITE_P(Plans, SyncBatchNorm,
                         ::testing::Values(Plan{{9}}, Plan{{5, 4}}, Plan{{4, 0, 3}}, Plan{{0, 1, 1, 5}},
                                           Plan{{3, 2}, {2, 0}}, Plan{{3, 3}, {0, 0}, {1, 2}}),
                         [](const auto& plan) { return "Plan" + std::to_string(plan.index); });

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
