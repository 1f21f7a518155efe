// The state of an optimizer whose parts lie with all ranks, as one.
#pragma once

#include <vector>

#include "comm/communicator.h"
#include "comm/sharded_parameters.h"
#include "engine/optim/optimizer.h"

namespace convoy {

/// Between this rank's optimizer, which was made of its pieces, and what a checkpoint keeps: the same as
/// without shards, so that any number of ranks may go on from it, and none as well.
class ShardedOptimizer {
 public:
  /// groups: of whole parameters, from which parameters.pieces_of() made the optimizer's. control: the same
  /// ranks' communicator of the CPU. All outlive this. UsageError for an optimizer that cannot be split:
  /// whose update of an element depends on others.
  ShardedOptimizer(Optimizer& optimizer, std::vector<ParameterGroup> groups,
                   const ShardedParameters& parameters, Communicator& control);

  /// State of whole parameters, of zeros, in host memory.
  OptimizerState make_whole() const;
  /// All ranks' state, in host memory. Every rank calls it; the host waits.
  OptimizerState gather() const;
  /// Rank 0's state, and its number of steps, into the pieces of all ranks. Every rank calls it, with tensors
  /// as make_whole() makes them, which hold rank 0's values then; the host waits.
  void scatter(const OptimizerState& whole) const;

 private:
  /// "momentum": state of this kind lies beside every piece.
  std::vector<std::string> kinds() const;
  std::vector<Tensor> pieces_of(const std::string& kind) const;

  Optimizer& optimizer_;
  std::vector<ParameterGroup> groups_;
  const ShardedParameters& parameters_;
  Communicator& control_;
};

}  // namespace convoy
