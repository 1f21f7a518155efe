// Conversion between the sharded state of the ranks' optimizers and the full state in a checkpoint.
#pragma once

#include <map>
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
  /// parameters. `control` is a CPU communicator of the same ranks. All references must outlive this object.
  /// Throws UsageError if the optimizer is not elementwise: its step of one element depends on others.
  ShardedOptimizer(optim::Optimizer& optimizer, std::vector<optim::ParameterGroup> groups,
                   const ShardedParameters& parameters, Communicator& control);

  /// Returns a full state of zeros in host memory.
  optim::OptimizerState make_whole() const;
  /// Returns the full state of all ranks' optimizers in host memory on rank 0, and an empty state on the other
  /// ranks, which need memory for one bucket. Collective; blocks until the state is received.
  optim::OptimizerState gather() const;
  /// Distributes rank 0's full state, and its number of steps, to the optimizers of all ranks. On rank 0,
  /// `whole` has the tensors that make_whole() returns; other ranks ignore it, and need memory for one bucket.
  /// Collective; blocks until the state is received.
  void scatter(const optim::OptimizerState& whole) const;

 private:
  /// Returns the kinds of state that the optimizer keeps for each piece, for example "momentum".
  std::vector<std::string> kinds() const;
  /// Returns the state tensors of one kind, by piece.
  std::vector<Tensor> pieces_of(const std::string& kind) const;

  /// Returns the tensors of a full state by their names.
  std::map<std::string, Tensor> by_name(const optim::OptimizerState& whole) const;
  /// Calls f(kind, bucket number, pieces of the kind, a zeroed bucket in host memory) for each kind and bucket.
  template <class F>
  void for_each_bucket(const F& f) const;

  optim::Optimizer& optimizer_;
  std::vector<optim::ParameterGroup> groups_;
  const ShardedParameters& parameters_;
  Communicator& control_;
};

}  // namespace convoy::dist
