// Conversion between the sharded state of the ranks' optimizers and the full state in a checkpoint.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "convoy/comm/core/communicator.h"
#include "convoy/comm/parallel/zero/sharded_parameters.h"
#include "convoy/engine/optim/optimizer.h"

namespace convoy::dist {

/// A view of all ranks' optimizers as one. The full state has the format of an optimizer without shards, so a
/// training can be resumed with any number of ranks and with or without ZeRO. Not thread-safe: the thread
/// that steps the optimizer uses it.
class ShardedOptimizer {
 public:
  /// `optimizer` is this rank's optimizer, created from parameters.pieces_of(groups). `groups` holds whole
  /// parameters. `control` is a CPU communicator of all ranks, and `shard_control` one of the ranks of
  /// parameters.comm(); null: these are all ranks. All objects must outlive this one. Throws UsageError if the
  /// optimizer is not elementwise: its step of one element depends on others.
  ShardedOptimizer(optim::Optimizer& optimizer, std::vector<optim::ParameterGroup> groups,
                   const ShardedParameters& parameters, Communicator& control,
                   Communicator* shard_control = nullptr);

  /// Returns the full state without values: its tensors are on the meta device.
  optim::OptimizerState describe() const;
  /// Returns this rank's shard of the state, which shares the optimizer's tensors. Blocks until the device
  /// has computed the number of steps.
  optim::OptimizerShard shard() const;
  /// Returns the shard of rank (rank + distance) % size of the group in host memory, so that this rank can replace it.
  /// Needs memory for that shard and one bucket. Collective; blocks until the shard is received.
  optim::OptimizerShard shard_of_peer(int distance) const;
  /// Returns the full state of all ranks' optimizers in host memory on rank 0, and an empty state on the
  /// other ranks, which need memory for one bucket. Replicas send nothing to rank 0. Collective; blocks until the
  /// state is received.
  optim::OptimizerState gather() const;
  /// Sets the state of all ranks' optimizers, the number of steps to that of rank 0, and
  /// Optimizer::own_steps() to `own_steps` of all ranks together. For each tensor of the full state, `fill`
  /// gets its name and kind with zeros in host memory, and stores the elements that this rank provides; no
  /// other rank provides them. Each rank needs memory for one tensor. Collective; blocks until the state is
  /// received.
  void restore(std::int64_t steps, const optim::StepsByName& own_steps,
               const std::function<void(const optim::NamedState& whole)>& fill) const;

 private:
  /// Returns the kinds of state that the optimizer keeps for each piece, for example "momentum".
  std::vector<std::string> kinds() const;
  /// Returns the state tensors of one kind, by piece.
  std::vector<Tensor> pieces_of(const std::string& kind) const;

  /// Returns the numbers of steps that the ranks have, which agree if several have one of the same parameter.
  /// Collective.
  optim::StepsByName gathered(const optim::StepsByName& local) const;
  /// Returns the shard of a rank with undefined values, ordered by kind, bucket and slice.
  optim::OptimizerShard shard_without_values(int rank) const;
  /// Returns the full state with tensors of zeros on `device`.
  optim::OptimizerState make_whole(const DeviceContext& device) const;
  /// Calls f(kind, bucket number, the bucket of all shards in host memory) for each kind and bucket.
  /// Collective.
  template <class F>
  void for_each_gathered_bucket(const F& f) const;

  optim::Optimizer& optimizer_;
  std::vector<optim::ParameterGroup> groups_;
  const ShardedParameters& parameters_;
  Communicator& control_;        // of all ranks
  Communicator& shard_control_;  // of the ranks with one shard each
};

}  // namespace convoy::dist
