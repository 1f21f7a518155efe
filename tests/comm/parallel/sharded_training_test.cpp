// Tests that training with ZeRO stages 1 and 2 gives the results of replicated training.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/parallel/broadcast.h"
#include "convoy/comm/parallel/gradient_synchronizer.h"
#include "convoy/comm/parallel/zero/sharded_gradients.h"
#include "convoy/comm/parallel/zero/sharded_optimizer.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/random.h"
#include "convoy/models/models.h"
#include "tests/comm/rank_threads.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/make_optimizer.h"

namespace convoy::testing {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Plan {
  int zero = 0;
  std::string model = "lenet";
  std::string optimizer = "adamw";
  std::int64_t micro_batches = 1;
  std::optional<double> clip_norm = std::nullopt;
  double bucket_mb = 0.05;
  int steps = 3;
  int hosts = 1;  // which hold all shards each
};

/// The communicators of a rank by host, if the ranks of `all` are on `hosts` of the same size, in their order.
struct Hosts {
  Hosts(dist::Communicator& all, int hosts) {
    if (hosts == 1) return;
    const int ranks = all.size() / hosts;
    own = all.split(all.rank() / ranks);
    replicas = all.split(all.rank() % ranks);
  }
  void finish() const {
    for (const auto& comm : {own.get(), replicas.get()})
      if (comm != nullptr) comm->finish();
  }
  std::unique_ptr<dist::Communicator> own, replicas;
};

/// One rank's training in fp64 with two samples per micro-batch, which depend on the step and the rank.
class Training {
 public:
  Training(dist::Communicator& comm, const Plan& plan)
      : comm_(comm),
        hosts_(comm, plan.hosts),
        plan_(plan),
        size_(plan.model == "lenet" ? 16 : 8),
        model_(
            models::make(plan.model, {.input = {size_, size_, 3}, .device = comm.context()}).to(DType::f64)),
        groups_(optim::decay_groups(model_.parameters(), 1e-3)) {
    std::vector<optim::ParameterGroup> groups = groups_;
    if (plan_.zero > 0) {
      const Variable loss =
          cross_entropy_sum(model_(Tensor::zeros({1, size_, size_, 3}, DType::f64, comm.context())),
                            Tensor::zeros({1}, DType::i32, comm.context()));
      shards_ = std::make_unique<dist::ShardedParameters>(
          model_.parameters(), dist::plan_of_graph(model_.parameters(), loss, plan.bucket_mb), group(),
          hosts_.replicas.get());
      groups = shards_->pieces_of(groups_);
    }
    before_optimizer_ = in_use();
    optimizer_ = make_optimizer(plan.optimizer, groups);
    optimizer_memory_ = in_use() - before_optimizer_;
    if (plan_.zero > 0) {
      sharded_ =
          std::make_unique<dist::ShardedOptimizer>(*optimizer_, groups_, *shards_, comm, hosts_.own.get());
      auto gradients = std::make_unique<dist::ShardedGradients>(*shards_, dist::ZeroStage(plan_.zero));
      sharded_gradients_ = gradients.get();
      gradients_ = std::move(gradients);
    } else {
      gradients_ = std::make_unique<dist::GradientSynchronizer>(
          model_.parameters(), comm, dist::GradientSynchronizerOptions{.bucket_mb = plan.bucket_mb});
    }
  }

  void run(int steps) {
    dist::CommunicatorGroup norms(group());
    for (int end = step_ + steps; step_ < end; ++step_) {
      gradients_->begin_forward(static_cast<std::size_t>(plan_.micro_batches));
      for (std::int64_t k = 0; k < plan_.micro_batches; ++k) {
        gradients_->begin_step(k + 1 == plan_.micro_batches);
        backward(loss(k), {.accumulate = gradients_->accumulates() && k > 0});
        gradients_->end_micro_batch();
      }
      gradients_->finish();
      optimizer_->step(0.01 / (1 + step_),
                       {.clip_norm = plan_.clip_norm, .process_group = plan_.zero > 0 ? &norms : nullptr});
      gradients_->end_step();
    }
    gradients_->gather_parameters();
  }

  std::vector<double> parameters() const {
    std::vector<double> all;
    for (const nn::NamedParameter& parameter : model_.parameters()) append(all, parameter.variable.value());
    return all;
  }
  optim::OptimizerState state() const { return sharded_ ? sharded_->gather() : state_of(*optimizer_); }
  void resume(const optim::OptimizerState& state, const std::vector<double>& parameters, int step) {
    std::size_t at = 0;
    for (const nn::NamedParameter& parameter : model_.parameters()) {
      const Tensor& value = parameter.variable.value();
      const std::span<const double> values(parameters.data() + at, static_cast<std::size_t>(value.numel()));
      value.copy_from(Tensor::from(values, value.shape(), value.context()));
      at += values.size();
    }
    if (sharded_) {
      sharded_->restore(state.steps, state.own_steps, [&](const optim::NamedState& whole) {
        if (comm_.rank() != 0) return;
        for (const optim::NamedState& saved : state.tensors)
          if (saved.name == whole.name) whole.tensor.copy_from(saved.tensor);
      });
    } else {
      const std::vector<optim::NamedState> target = optimizer_->state();
      for (std::size_t i = 0; i < target.size(); ++i) target[i].tensor.copy_from(state.tensors[i].tensor);
      optimizer_->set_steps(state.steps, state.own_steps);
    }
    step_ = step;
  }

  const dist::ShardedGradients& sharded_gradients() const { return *sharded_gradients_; }
  const dist::GradientReducer& gradients() const { return *gradients_; }
  const dist::ShardPlan& shards() const { return shards_->shards(); }
  const dist::ShardedOptimizer& sharded() const { return *sharded_; }
  const Hosts& hosts() const { return hosts_; }
  void finish() const {
    hosts_.finish();
    comm_.finish();
  }
  std::size_t optimizer_memory() const { return optimizer_memory_; }
  std::size_t parameter_bytes() const {
    return static_cast<std::size_t>(model_.parameter_count()) * sizeof(double);
  }

 private:
  dist::Communicator& group() const { return hosts_.own ? *hosts_.own : comm_; }
  static void append(std::vector<double>& all, const Tensor& tensor) {
    const std::vector<double> values = tensor.to_vector<double>();
    all.insert(all.end(), values.begin(), values.end());
  }
  /// Returns the memory in use on this rank's device, which no other rank uses.
  std::size_t in_use() const { return comm_.context().memory().stats().in_use; }

  Variable loss(std::int64_t micro_batch) {
    const Random random{.seed = 3, .purpose = RandomPurpose::test};
    const auto key = static_cast<std::uint32_t>((step_ * 8 + micro_batch) * 100 + comm_.rank());
    std::vector<double> pixels;
    for (std::int64_t i = 0; i < 2 * size_ * size_ * 3; ++i)
      pixels.push_back(to_uniform(random.words(static_cast<std::uint64_t>(i), key)[0]) - 0.5);
    const std::vector<std::int32_t> labels = {static_cast<std::int32_t>(key % 10), comm_.rank() % 10};
    const Variable logits =
        model_(Tensor::from(pixels, {2, size_, size_, 3}, comm_.context()), {.training = true});
    return cross_entropy_sum(logits, Tensor::from(labels, {2}, comm_.context())) /
           static_cast<double>(2 * plan_.micro_batches * comm_.size());
  }

  dist::Communicator& comm_;
  Hosts hosts_;
  Plan plan_;
  std::int64_t size_;  // height and width of an image, the smallest that the model accepts
  models::Model model_;
  std::vector<optim::ParameterGroup> groups_;
  std::unique_ptr<dist::ShardedParameters> shards_;
  std::size_t before_optimizer_ = 0, optimizer_memory_ = 0;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::unique_ptr<dist::ShardedOptimizer> sharded_;
  std::unique_ptr<dist::GradientReducer> gradients_;
  dist::ShardedGradients* sharded_gradients_ = nullptr;
  int step_ = 0;
};

/// Returns the trained parameters, which must be the same on all ranks.
std::vector<double> train(int ranks, const Plan& plan) {
  std::vector<std::vector<double>> results(static_cast<std::size_t>(ranks));
  on_ranks(ranks, [&](dist::Communicator& comm) {
    Training training(comm, plan);
    training.run(plan.steps);
    results[static_cast<std::size_t>(comm.rank())] = training.parameters();
    training.finish();
  });
  EXPECT_THAT(results, Each(results.front()));
  return results.front();
}

double distance(const std::vector<double>& a, const std::vector<double>& b) {
  double maximum = a.size() == b.size() && !a.empty() ? 0 : 1e300;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    maximum = std::max(maximum, std::abs(a[i] - b[i]) / std::max(1e-3, std::abs(b[i])));
  return maximum;
}

// On the CPU, a reduce-scatter adds in the same order as an all-reduce, so the rounding is the same.
TEST(Sharded, EqualsReplicatedTrainingBitwiseWithoutClippingAndAccumulation) {
  for (const char* optimizer : {"sgd", "adam"})
    for (const int ranks : {1, 2, 3}) {
      const std::vector<double> whole = train(ranks, {.zero = 0, .optimizer = optimizer});
      for (const int zero : {1, 2})
        EXPECT_EQ(train(ranks, {.zero = zero, .optimizer = optimizer}), whole)
            << optimizer << ", " << ranks << " ranks, stage " << zero;
    }
}

TEST(Sharded, ClipsByGlobalNormAndAccumulatesMicroBatches) {
  for (const auto& [model, ranks] : {std::pair("lenet", 3), std::pair("resnet20", 2)}) {
    Plan plan{.model = model, .micro_batches = 2, .clip_norm = 0.05, .steps = 2};
    const std::vector<double> whole = train(ranks, plan);
    for (const int zero : {1, 2}) {
      plan.zero = zero;
      EXPECT_LE(distance(train(ranks, plan), whole), 1e-9) << model << ", stage " << zero;
    }
  }
}

TEST(Sharded, UsesExpectedMemory) {
  constexpr int kRanks = 4;
  for (const int zero : {1, 2})
    on_ranks(kRanks, [&](dist::Communicator& comm) {
      Training training(comm, {.zero = zero, .model = "resnet20", .micro_batches = 4});
      training.run(1);
      const auto elements = [](std::int64_t count) {
        return static_cast<std::size_t>(count) * sizeof(double);
      };
      // adamw stores two numbers per parameter. In addition to 1/N of them, a rank stores the padding of its
      // shards, and the allocator rounds up the size of each piece.
      const std::size_t rounding =
          2 * training.shards().pieces.front().size() * 512 + training.shards().shard_numels.size() * 128;
      EXPECT_LE(training.optimizer_memory(), 2 * training.parameter_bytes() / kRanks + rounding);
      EXPECT_GT(training.optimizer_memory(), training.parameter_bytes() / kRanks);

      std::int64_t shard_sum = 0;
      for (const std::int64_t shard : training.shards().shard_numels) shard_sum += shard;
      if (zero == 2) {
        EXPECT_EQ(training.sharded_gradients().buffers(), 2U);
        EXPECT_EQ(training.gradients().gradient_bytes(),
                  elements(shard_sum) + 2 * elements(training.shards().max_numel()));
        EXPECT_LE(elements(shard_sum), training.parameter_bytes() / kRanks +
                                           training.shards().shard_numels.size() * 64 + 64 * kRanks);
      } else {
        EXPECT_EQ(training.gradients().gradient_bytes(), elements(shard_sum * kRanks));
      }
      comm.finish();
    });
}

TEST(Sharded, StateResumesWithAnyNumberOfRanks) {
  const Plan plan{.zero = 1, .optimizer = "adam", .steps = 2};
  optim::OptimizerState state;
  std::vector<double> parameters;
  on_ranks(3, [&](dist::Communicator& comm) {
    Training training(comm, plan);
    training.run(plan.steps);
    const optim::OptimizerState whole = training.state();  // on rank 0
    if (comm.rank() == 0) {
      state = whole;
      parameters = training.parameters();
    }
    comm.finish();
  });
  ASSERT_EQ(state.name, "adam");
  EXPECT_EQ(state.steps, 2);
  // Continues the training on another number of ranks.
  const auto resume_on = [&](int ranks, int zero) {
    std::vector<double> result;
    on_ranks(ranks, [&](dist::Communicator& comm) {
      Training training(comm, {.zero = zero, .optimizer = "adam"});
      const bool has_state = comm.rank() == 0 || zero == 0;
      training.resume(has_state ? state : optim::OptimizerState{}, parameters, plan.steps);
      const optim::OptimizerState back = training.state();
      ASSERT_EQ(back.tensors.size(), has_state ? state.tensors.size() : 0);
      for (std::size_t i = 0; i < back.tensors.size(); ++i) {
        EXPECT_EQ(back.tensors[i].name, state.tensors[i].name);
        EXPECT_EQ(back.tensors[i].kind, state.tensors[i].kind);
        EXPECT_EQ(back.tensors[i].tensor.to_vector<double>(), state.tensors[i].tensor.to_vector<double>());
      }
      training.run(2);
      if (comm.rank() == 0) result = training.parameters();
      comm.finish();
    });
    return result;
  };
  for (const int ranks : {2, 4}) {
    const std::vector<double> whole = resume_on(ranks, 0);
    EXPECT_EQ(resume_on(ranks, 1), whole);
    EXPECT_EQ(resume_on(ranks, 2), whole);
  }
}

// ---- Hybrid sharding: each host holds all shards ----

// A group of one rank holds everything, and two ranks have one order of addition.
TEST(HybridSharding, OfOneRankPerHostEqualsReplicatedTrainingBitwise) {
  const std::vector<double> whole = train(2, {.zero = 0});
  for (const int zero : {1, 2}) EXPECT_EQ(train(2, {.zero = zero, .hosts = 2}), whole) << "stage " << zero;
}

// The ranks of a host are added first: another order, of at most 6 numbers in fp64.
TEST(HybridSharding, EqualsReplicatedTraining) {
  for (const char* optimizer : {"sgd", "adamw"})
    for (const auto& [ranks, hosts] : {std::pair(4, 2), std::pair(6, 2), std::pair(6, 3)}) {
      Plan plan{.optimizer = optimizer};
      const std::vector<double> whole = train(ranks, plan);
      plan.hosts = hosts;
      for (plan.zero = 1; plan.zero <= 2; ++plan.zero)
        EXPECT_LE(distance(train(ranks, plan), whole), 1e-9)
            << optimizer << ", " << ranks << " ranks on " << hosts << " hosts, stage " << plan.zero;
    }
}

TEST(HybridSharding, ClipsByGlobalNormAndAccumulatesMicroBatches) {
  for (const auto& [model, ranks] : {std::pair("lenet", 6), std::pair("resnet20", 4)}) {
    Plan plan{.model = model, .micro_batches = 3, .clip_norm = 0.05, .steps = 2};
    const std::vector<double> whole = train(ranks, plan);
    plan.hosts = 2;
    for (plan.zero = 1; plan.zero <= 2; ++plan.zero)
      EXPECT_LE(distance(train(ranks, plan), whole), 1e-9) << model << ", stage " << plan.zero;
  }
}

TEST(HybridSharding, StoresAndSendsTheStateOfOneHost) {
  constexpr int kRanks = 4, kHosts = 2, kMicroBatches = 3;
  for (const int zero : {1, 2})
    on_ranks(kRanks, [&](dist::Communicator& comm) {
      Training training(comm, {.zero = zero, .micro_batches = kMicroBatches, .hosts = kHosts});
      EXPECT_EQ(training.shards().ranks, kRanks / kHosts);
      const std::size_t rounding =
          2 * training.shards().pieces.front().size() * 512 + training.shards().shard_numels.size() * 128;
      EXPECT_LE(training.optimizer_memory(), 2 * training.parameter_bytes() / (kRanks / kHosts) + rounding);

      const std::uint64_t before = training.hosts().replicas->sequence_number();
      training.run(1);
      // One all-reduce per bucket and one of the flags, however many micro-batches there are.
      EXPECT_EQ(training.hosts().replicas->sequence_number() - before,
                training.shards().shard_numels.size() + 1);

      const optim::OptimizerShard shard = training.sharded().shard();
      EXPECT_EQ(shard.count, kRanks / kHosts);
      EXPECT_EQ(shard.index, comm.rank() % shard.count);
      training.finish();
    });
}

TEST(HybridSharding, StateResumesWithAnyGroups) {
  const Plan plan{.zero = 2, .optimizer = "adam", .steps = 2, .hosts = 2};
  optim::OptimizerState state;
  std::vector<double> parameters;
  on_ranks(4, [&](dist::Communicator& comm) {
    Training training(comm, plan);
    training.run(plan.steps);
    optim::OptimizerState whole = training.state();  // on rank 0
    EXPECT_EQ(whole.tensors.empty(), comm.rank() != 0);
    if (comm.rank() == 0) {
      state = std::move(whole);
      parameters = training.parameters();
    }
    training.finish();
  });
  const auto resume_on = [&](int ranks, int zero, int hosts) {
    std::vector<double> result;
    on_ranks(ranks, [&](dist::Communicator& comm) {
      Training training(comm, {.zero = zero, .optimizer = "adam", .hosts = hosts});
      training.resume(comm.rank() == 0 || zero == 0 ? state : optim::OptimizerState{}, parameters,
                      plan.steps);
      if (zero > 0) {
        const optim::OptimizerState back = training.state();
        ASSERT_EQ(back.tensors.size(), comm.rank() == 0 ? state.tensors.size() : 0);
        for (std::size_t i = 0; i < back.tensors.size(); ++i)
          EXPECT_EQ(back.tensors[i].tensor.to_vector<double>(), state.tensors[i].tensor.to_vector<double>());
      }
      training.run(2);
      if (comm.rank() == 0) result = training.parameters();
      training.finish();
    });
    return result;
  };
  for (const int ranks : {4, 6}) {
    const std::vector<double> whole = resume_on(ranks, 0, 1);
    EXPECT_LE(distance(resume_on(ranks, 1, 2), whole), 1e-9);
    EXPECT_LE(distance(resume_on(ranks, 2, 1), whole), 1e-9);
  }
  EXPECT_LE(distance(resume_on(6, 2, 3), resume_on(6, 0, 1)), 1e-9);
}

nn::NamedParameter parameter(const std::string& name, std::int64_t count, const DeviceContext& device) {
  return {name, Variable(Tensor::full({count}, 1, DType::f64, device), true)};
}

/// Trains on some ranks, of which rank 1 alone has a gradient of `one`, and the last one none at all.
void expect_step_with_gradient_on_any_rank_only(int ranks, int hosts) {
  for (const dist::ZeroStage stage : {dist::ZeroStage::optimizer, dist::ZeroStage::gradients})
    on_ranks(ranks, [&](dist::Communicator& comm) {
      const Hosts by_host(comm, hosts);
      dist::Communicator& group = by_host.own ? *by_host.own : comm;
      const nn::NamedParameter everywhere = parameter("everywhere", 30, comm.context()),
                               one = parameter("one", 50, comm.context()),
                               nowhere = parameter("nowhere", 40, comm.context());
      const std::vector<nn::NamedParameter> all = {everywhere, one, nowhere};
      const Variable used = sum(everywhere.variable) + sum(one.variable);
      dist::ShardedParameters shards(all, dist::plan_of_graph(all, used, 0.0003), group,
                                     by_host.replicas.get());
      EXPECT_EQ(shards.plan().buckets.back().slices.back().parameter,
                2U);  // the parameter that the graph does not contain
      optim::Sgd optimizer(shards.pieces_of({optim::ParameterGroup{.parameters = all, .weight_decay = 1}}),
                           {});
      dist::ShardedGradients gradients(shards, stage);
      for (int step = 0; step < 3; ++step) {
        gradients.begin_forward(1);
        Variable loss = sum(everywhere.variable * 1.0);
        if (comm.rank() == 1) loss = loss + sum(one.variable * 2.0);
        gradients.begin_step(true);
        if (comm.rank() != ranks - 1) backward(loss);
        gradients.end_micro_batch();
        gradients.finish();
        if (std::any_of(shards.piece_variables().begin(), shards.piece_variables().end(),
                        [](const Variable& piece) { return piece.has_new_grad(); })) {
          optimizer.step(0.5);
        }
        gradients.end_step();
      }
      gradients.gather_parameters();
      // p -= 0.5 (g + p), where g is the sum over ranks, three times from 1: exact in binary.
      const auto trained = [](double g) { return (1 - 7 * g) / 8; };
      EXPECT_THAT(everywhere.variable.value().to_vector<double>(), Each(trained(ranks - 1)));
      EXPECT_THAT(one.variable.value().to_vector<double>(), Each(trained(2)));
      EXPECT_THAT(nowhere.variable.value().to_vector<double>(), Each(1));
      by_host.finish();
      comm.finish();
    });
}

TEST(Sharded, StepsParameterWithGradientOnAnyRankOnly) { expect_step_with_gradient_on_any_rank_only(3, 1); }

TEST(HybridSharding, StepsParameterWithGradientOnAnyRankOnly) {
  expect_step_with_gradient_on_any_rank_only(4, 2);
  expect_step_with_gradient_on_any_rank_only(6, 3);
}

/// A training by AdamW of parameters of which "rare" has a gradient in every second step only, and "never" in
/// none.
struct RareGradients {
  optim::OptimizerState state;
  std::vector<double> values;  // of all parameters; empty: 1

  std::vector<nn::NamedParameter> parameters(const DeviceContext& device) const {
    std::vector<nn::NamedParameter> all;
    std::size_t at = 0;
    for (const auto& [name, count] :
         {std::pair("always", 30), std::pair("rare", 50), std::pair("never", 40)}) {
      all.push_back(parameter(name, count, device));
      if (!values.empty())
        all.back().variable.value().copy_from(
            Tensor::from(std::span(values).subspan(at, static_cast<std::size_t>(count)), {count}, device));
      at += static_cast<std::size_t>(count);
    }
    return all;
  }
  static Variable loss(const std::vector<nn::NamedParameter>& all, int step) {
    const Variable always = sum(all[0].variable * (step + 1.0));
    return step % 2 == 0 ? always : always + sum(all[1].variable * all[1].variable);
  }
  void keep(const std::vector<nn::NamedParameter>& all) {
    values.clear();
    for (const nn::NamedParameter& each : all)
      for (const double value : each.variable.value().to_vector<double>()) values.push_back(value);
  }
};

std::vector<optim::ParameterGroup> group_of(const std::vector<nn::NamedParameter>& all) {
  return {optim::ParameterGroup{.parameters = all, .weight_decay = 0.1}};
}

/// Continues `from` on some ranks, of which the last one alone computes gradients.
RareGradients with_rare_gradients(const RareGradients& from, int ranks, dist::ZeroStage stage, int begin,
                                  int end) {
  RareGradients result;
  on_ranks(ranks, [&](dist::Communicator& comm) {
    const std::vector<nn::NamedParameter> all = from.parameters(comm.context());
    dist::ShardedParameters shards(all, dist::plan_of_graph(all, RareGradients::loss(all, 1), 0.0003), comm);
    optim::Adam optimizer(shards.pieces_of(group_of(all)), {.decoupled = true});
    const dist::ShardedOptimizer sharded(optimizer, group_of(all), shards, comm);
    if (!from.values.empty())
      sharded.restore(from.state.steps, comm.rank() == 0 ? from.state.own_steps : optim::StepsByName(),
                      [&](const optim::NamedState& whole) {
                        for (const optim::NamedState& saved : from.state.tensors)
                          if (comm.rank() == 0 && saved.name == whole.name)
                            whole.tensor.copy_from(saved.tensor);
                      });
    dist::ShardedGradients gradients(shards, stage);
    dist::CommunicatorGroup group(comm);
    for (int step = begin; step < end; ++step) {
      gradients.begin_forward(1);
      gradients.begin_step(true);
      if (comm.rank() == ranks - 1) backward(RareGradients::loss(all, step));
      gradients.end_micro_batch();
      gradients.finish();
      optimizer.step(0.01, {.process_group = &group});
      gradients.end_step();
    }
    gradients.gather_parameters();
    optim::OptimizerState whole = sharded.gather();
    EXPECT_EQ(sharded.shard_of_peer(1).own_steps, (optim::StepsByName{{"never", 0}, {"rare", end / 2}}));
    if (comm.rank() == 0) {
      result.state = std::move(whole);
      result.keep(all);
    }
    comm.finish();
  });
  return result;
}

TEST(Sharded, CountsTheStepsOfEachParameter) {
  RareGradients plain;
  const std::vector<nn::NamedParameter> all = plain.parameters(Device::cpu());
  optim::Adam optimizer(group_of(all), {.decoupled = true});
  for (int step = 0; step < 7; ++step) {
    backward(RareGradients::loss(all, step));
    optimizer.step(0.01);
  }
  plain.keep(all);
  for (const dist::ZeroStage stage : {dist::ZeroStage::optimizer, dist::ZeroStage::gradients}) {
    const RareGradients half = with_rare_gradients({}, 3, stage, 0, 3);
    EXPECT_EQ(half.state.own_steps, (optim::StepsByName{{"never", 0}, {"rare", 1}}));
    EXPECT_EQ(with_rare_gradients(half, 2, stage, 3, 7).values, plain.values);
  }
}

/// An optimizer whose step is not elementwise, like one that orthogonalizes whole matrices.
class Whole final : public optim::Optimizer {
 public:
  explicit Whole(const std::vector<optim::ParameterGroup>& groups) : optim::Optimizer(groups) {}
  std::vector<optim::NamedState> state() const override { return {}; }
  std::string name() const override { return "whole"; }
  bool is_elementwise() const override { return false; }

 private:
  void step_groups(const Indices&, const kernels::StepScalars&) override {}
};

TEST(Sharded, RejectsOptimizerThatIsNotElementwise) {
  on_ranks(2, [](dist::Communicator& comm) {
    const std::vector<nn::NamedParameter> all = {parameter("a", 64, comm.context())};
    dist::ShardedParameters shards(all, dist::plan_of_graph(all, sum(all.front().variable), 1), comm);
    const std::vector<optim::ParameterGroup> groups = {optim::ParameterGroup{.parameters = all}};
    Whole optimizer(shards.pieces_of(groups));
    EXPECT_THAT(
        message_of<UsageError>([&] { dist::ShardedOptimizer(optimizer, groups, shards, comm); }),
        HasSubstr("sharding: optimizer whole cannot be sharded, because its step is not elementwise"));
    comm.finish();
  });
}

TEST(Sharded, LeavingAStepEndsWaitOfPeers) {
  on_ranks(2, [](dist::Communicator& comm) {
    const std::vector<nn::NamedParameter> all = {parameter("a", 64, comm.context())};
    dist::ShardedParameters shards(all, dist::plan_of_graph(all, sum(all.front().variable), 1), comm);
    auto gradients = std::make_unique<dist::ShardedGradients>(shards, dist::ZeroStage::optimizer);
    gradients->begin_forward(1);
    if (comm.rank() == 1) {
      backward(sum(all.front().variable));
      gradients.reset();
    } else {
      EXPECT_THAT(message_of<PeerError>([&] {
                    gradients->begin_step(true);
                    backward(sum(all.front().variable));
                    gradients->end_micro_batch();
                    gradients->finish();
                  }),
                  HasSubstr("rank 1 left in the middle of a step"));
    }
  });
}

// Rank 3 shares no communicator of the gradients with rank 0.
TEST(HybridSharding, LeavingAStepEndsWaitOfPeers) {
  on_ranks(4, [](dist::Communicator& comm) {
    const Hosts by_host(comm, 2);
    const std::vector<nn::NamedParameter> all = {parameter("a", 64, comm.context())};
    dist::ShardedParameters shards(all, dist::plan_of_graph(all, sum(all.front().variable), 1), *by_host.own,
                                   by_host.replicas.get());
    auto gradients = std::make_unique<dist::ShardedGradients>(shards, dist::ZeroStage::gradients);
    gradients->begin_forward(1);
    if (comm.rank() == 3) {
      gradients->begin_step(true);
      backward(sum(all.front().variable));
      gradients.reset();
      return;
    }
    EXPECT_THROW(
        {
          gradients->begin_step(true);
          backward(sum(all.front().variable));
          gradients->end_micro_batch();
          gradients->finish();
        },
        PeerError);
  });
}

}  // namespace
}  // namespace convoy::testing
