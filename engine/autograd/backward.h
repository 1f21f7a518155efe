// The traversal: gradients of one scalar with respect to every leaf that it depends on.
#pragma once

#include "engine/autograd/variable.h"

namespace convoy {

struct BackwardOptions {
  /// Add to fresh gradients of leaves instead of replacing them: the second and later micro-batches of an
  /// update.
  bool accumulate = false;
  /// The gradient to start from; undefined: ones, and then the variable must have one element.
  Tensor seed;
};

/// Walks the graph from `loss` by dependency counting: a node runs when every consumer of its result has run,
/// so a leaf's ready-hook fires at its last contribution, while the rest of backward still runs. Among ready
/// nodes the latest recorded goes first, so the order is a function of the graph alone. Frees the graph; a
/// second backward through it is an error.
void backward(const Variable& loss, const BackwardOptions& options = {});

/// The leaves behind `loss` that want a gradient, in the order in which backward(loss) would fire their
/// ready-hooks. Computes nothing, and leaves the graph as it is.
std::vector<Variable> backward_order(const Variable& loss);

}  // namespace convoy
