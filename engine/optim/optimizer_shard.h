// OptimizerShard: the part of an optimizer's state that one rank has if the ranks share the state (ZeRO).
// Values without functions that block; not thread-safe while they change.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convoy/engine/nn/module.h"

namespace convoy::optim {

/// Consecutive elements of one tensor of an optimizer's state.
struct StatePiece {
  std::string name;                                    // of the whole tensor, as in NamedState
  Shape shape;                                         // of the whole tensor in memory
  nn::ParameterKind kind = nn::ParameterKind::weight;  // of the parameter
  std::int64_t begin = 0;                              // the first element, in row-major order of `shape`
  Tensor values;                                       // [n]
};

/// One shard of an optimizer's state. The pieces of all shards together are the whole state, each element
/// once.
struct OptimizerShard {
  std::string optimizer;           // name of the optimizer
  std::int64_t steps = 0;          // OptimizerState::steps
  int index = 0;                   // number of this shard, from 0
  int count = 1;                   // number of shards
  std::vector<StatePiece> pieces;  // at most one of each tensor

  /// Copies the elements of this shard into the tensor `name`, which has the shape of the whole tensor. Does
  /// nothing if this shard has no piece of it.
  void copy_to(const std::string& name, const Tensor& whole) const {
    for (const StatePiece& piece : pieces)
      if (piece.name == name) whole.slice(piece.begin, {piece.values.numel()}).copy_from(piece.values);
  }
};

}  // namespace convoy::optim
