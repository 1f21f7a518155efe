#include "convoy/apps/train/continuation/continuation.h"

#include <algorithm>
#include <array>
#include <map>
#include <utility>
#include <vector>

#include "convoy/apps/train/trainer.h"
#include "convoy/comm/parallel/broadcast.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

/// A training after a step, in memory.
struct RecoveryPoint {
  std::int64_t number = 0;  // the same on all ranks of a group; the next one is greater by 1
  TrainingState state;
  io::Snapshot snapshot;             // the model, and the optimizer or this rank's shard of it
  optim::OptimizerShard peer_shard;  // with shards that no other rank holds: a copy of the shard of a peer
};

/// Returns the `local` of all ranks. Collective.
template <class T>
std::vector<T> gathered(const TrainContext& context, const T& local) {
  std::vector<T> all(static_cast<std::size_t>(context.world_size()), local);
  constexpr std::int64_t kBytes = sizeof local;
  if (context.is_distributed())
    dist::all_gather_and_wait(*context.control, ConstView(&local, {kBytes}, DType::u8),
                              View{all.data(), {kBytes * context.world_size()}, DType::u8});
  return all;
}

/// Returns the first rank that holds each shard: `held` are those of this rank. Collective.
std::map<int, int> providers_of(const TrainContext& context,
                                const std::vector<const optim::OptimizerShard*>& held) {
  std::array<std::int32_t, 2> local = {-1, -1};
  for (std::size_t i = 0; i < held.size(); ++i) local.at(i) = held[i]->index;
  std::map<int, int> provider;
  int rank = 0;
  for (const auto& indices : gathered(context, local)) {
    for (const int index : indices)
      if (index >= 0) provider.emplace(index, rank);
    ++rank;
  }
  return provider;
}

/// Sets the state of the optimizer from the shards that the ranks hold in memory: `held` are those of this rank,
/// `provider` the result of providers_of(), with all shards. Collective.
void restore_shards(Trainer& trainer, const std::vector<const optim::OptimizerShard*>& held,
                    const std::map<int, int>& provider) {
  optim::StepsByName own_steps;
  for (const optim::OptimizerShard* shard : held)
    own_steps.insert(shard->own_steps.begin(), shard->own_steps.end());
  const auto fill = [&](const optim::NamedState& whole) {
    for (const optim::OptimizerShard* shard : held)
      if (provider.at(shard->index) == trainer.context().rank()) shard->copy_to(whole.name, whole.tensor);
  };
  if (dist::ShardedOptimizer* const sharded = trainer.parallel().sharded())
    return sharded->restore(held.front()->steps, own_steps, fill);
  optim::Optimizer& optimizer = trainer.parallel().optimizer();
  for (const optim::NamedState& state : optimizer.state()) {
    const Tensor whole = Tensor::zeros(state.tensor.shape(), state.tensor.dtype(), Device::cpu());
    fill({state.name, whole, state.kind});
    state.tensor.copy_from(whole);
  }
  optimizer.set_steps(held.front()->steps, own_steps);
}

class GroupContinuation final : public Continuation {
 public:
  void before_step(Trainer& trainer) override {
    if (!needs_points(trainer)) return keep_buffers(trainer);
    const bool is_due = trainer.step() % trainer.context().options.snapshot_every == 0;
    if (points_.empty() || is_adopted_ || is_due) take_point(trainer);
    is_adopted_ = false;
  }

  bool is_possible(const Trainer* trainer) const override {
    return !points_.empty() || (trainer != nullptr && !needs_points(*trainer));
  }

  std::int64_t abandon(Trainer& trainer) override {
    saved_step_ = trainer.end_save_alone();
    if (!needs_points(trainer)) {
      // The position follows once a step is complete.
      if (trainer.step() == buffers_step_) {
        const std::vector<nn::NamedBuffer> buffers = trainer.context().model.root().buffers();
        for (std::size_t i = 0; i < buffers_.size(); ++i) buffers[i].tensor.copy_from(buffers_[i]);
      }
      points_.clear();
      copy_state(trainer, points_.emplace_back());
    }
    return points_.front().state.step;
  }

  void adopt(Trainer& trainer) override {
    const TrainContext& context = trainer.context();
    buffers_step_ = -1;
    is_adopted_ = true;
    const bool is_sharded = points_.front().snapshot.shard.count > 1;
    // A rank may have failed to take the newest one.
    std::int64_t number = points_.front().number;
    if (is_sharded) number = std::ranges::min(gathered(context, number));
    std::erase_if(points_, [&](const RecoveryPoint& each) { return each.number != number; });
    if (points_.empty())
      fail<PeerError>("continuing: this rank has no copy {} of the training's state", number);
    // Remains until the first step of the new group is due, which may lose a rank before it.
    const RecoveryPoint* const point = &points_.front();
    if (is_sharded) {
      std::vector<const optim::OptimizerShard*> held = {&point->snapshot.shard};
      if (!point->peer_shard.pieces.empty()) held.push_back(&point->peer_shard);
      const std::map<int, int> provider = providers_of(context, held);
      if (const int count = held.front()->count; std::ssize(provider) != count) {
        points_.clear();  // no later group has more shards
        fail<PeerError>(
            "the remaining ranks hold {} of {} shards of the optimizer's state: a rank has failed together "
            "with the one that had a copy of its shard",
            provider.size(), count);
      }
      restore_shards(trainer, held, provider);
    } else if (context.rank() == 0) {
      optim::Optimizer& optimizer = trainer.parallel().optimizer();
      const optim::OptimizerState& state = point->snapshot.optimizer;
      const std::vector<optim::NamedState> own = optimizer.state();
      for (std::size_t i = 0; i < own.size(); ++i) own[i].tensor.copy_from(state.tensors[i].tensor);
      optimizer.set_steps(state.steps, state.own_steps);
    }
    point->snapshot.restore_model(context.model.root());
    const std::vector<optim::NamedState> others = trainer.other_weights();
    for (std::size_t i = 0; i < point->snapshot.other_weights.size(); ++i)
      others[i].tensor.copy_from(point->snapshot.other_weights[i].tensor);
    trainer.set_state(point->state, context.checkpoints.contains(saved_step_) ? saved_step_ : -1);
  }

 private:
  /// Whether a step that fails may leave parameters that have been updated in part, or lose the only copy of a shard.
  static bool needs_points(const Trainer& trainer) {
    const TrainContext& context = trainer.context();
    return context.is_distributed() && (trainer.parallel().sharded() != nullptr || context.is_gpu());
  }

  static void copy_state(const Trainer& trainer, RecoveryPoint& point) {
    io::Snapshot live = trainer.parallel().snapshot();
    live.other_weights = trainer.other_weights();
    point.snapshot.copy_from(live);
    point.state = trainer.state();
  }

  /// Copies the state to host memory. If that fails on some ranks, these keep the previous point, as all others do.
  void take_point(Trainer& trainer) {
    trainer.synchronize();
    RecoveryPoint point;
    if (points_.size() == 2) {
      point = std::move(points_.back());
      points_.pop_back();
    }
    copy_state(trainer, point);
    point.number = points_.empty() ? 0 : points_.front().number + 1;
    point.peer_shard = {};
    // The other hosts hold the same shards. If a rank of them has failed, the last sums are wrong.
    if (trainer.context().host_groups.replicas != nullptr) {
      trainer.context().control->barrier();
    } else if (dist::ShardedOptimizer* const sharded = trainer.parallel().sharded()) {
      // Ranks of a host have consecutive numbers, so the farthest rank is on another host if there is one.
      point.peer_shard = sharded->shard_of_peer(std::max(1, trainer.context().world_size() / 2));
    }
    points_.insert(points_.begin(), std::move(point));
  }

  void keep_buffers(const Trainer& trainer) {
    points_.clear();
    buffers_.clear();
    for (const nn::NamedBuffer& buffer : trainer.context().model.root().buffers())
      buffers_.push_back(buffer.tensor.clone());
    buffers_step_ = trainer.step();
  }

  std::vector<RecoveryPoint> points_;  // at most two, the newest first
  bool is_adopted_ = false;            // a point of an earlier group is the newest one
  std::vector<Tensor> buffers_;     // the values of the model's buffers before the step after buffers_step_
  std::int64_t buffers_step_ = -1;  // -1: none
  std::int64_t saved_step_ = -1;    // of the latest checkpoint; -1: none
};

}  // namespace

std::unique_ptr<Continuation> make_continuation() { return std::make_unique<GroupContinuation>(); }

}  // namespace convoy
