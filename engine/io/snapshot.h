// Snapshot: what a checkpoint stores of a model and its optimizer.
#pragma once

#include <optional>
#include <vector>

#include "convoy/engine/nn/module.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/engine/optim/optimizer_shard.h"

namespace convoy::io {

/// The tensors of a model, and of an optimizer or of one shard of it. A snapshot that was made by of() shares
/// them with the model; copy_from() makes one in host memory, which does not change while training goes on.
struct Snapshot {
  std::vector<optim::NamedState> model;  // parameters, then buffers
  optim::OptimizerState optimizer;       // without tensors if the ranks store shards
  optim::OptimizerShard shard;           // without pieces otherwise
  /// Further weights of the model, as WeightAverage::state() returns them; usually none.
  std::vector<optim::NamedState> other_weights = {};

  /// Returns a snapshot that shares the tensors of the model. Waits until the parameters are complete on this
  /// rank. The caller adds the optimizer or a shard, and other weights.
  static Snapshot of(const nn::Module& model);

  /// Copies all of `other` to host memory, and waits for the copies. Uses the memory of an earlier copy again
  /// if shapes and types are equal. The memory is not from the allocator of the model, whose peak it leaves
  /// unchanged. No other thread uses this object meanwhile. Throws DeviceError if memory is exhausted.
  void copy_from(const Snapshot& other);
  /// Copies the model's tensors back into a model with the same parameters and buffers, and refreshes the
  /// low-precision copies.
  void restore_model(nn::Module& to) const;

 private:
  std::optional<DeviceContext> memory_;  // of the copies; none before the first
};

}  // namespace convoy::io
