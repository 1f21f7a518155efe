// backward(): computes the gradient of a scalar with respect to every leaf that it depends on. Several
// threads may call these functions at once for graphs that share no variable.
#pragma once

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// Options of backward().
struct BackwardOptions {
  /// Adds to leaf gradients that are new (has_new_grad()) instead of replacing them: for the second and later
  /// micro-batches of a step.
  bool accumulate = false;
  /// The gradient of `loss` to start from. Undefined means ones, which requires a `loss` of one element.
  Tensor seed = {};
};

/// Computes the gradients of `loss` with respect to all leaves that require one, and frees the graph.
///
/// Walks the graph by dependency counting: a node runs once every consumer of its result has run. A leaf's
/// ready hook therefore fires at its last contribution, while the rest of backward still runs. Among nodes
/// that can run, the one recorded last runs first, so the order depends on the graph alone.
///
/// Throws UsageError if nothing was recorded, if an earlier backward freed the graph, if `loss` is on the
/// meta device, or if the seed does not have the shape and dtype of `loss`.
void backward(const Variable& loss, const BackwardOptions& options = {});

/// Returns the leaves behind `loss` that require a gradient, in the order in which backward(loss) would fire
/// their ready hooks. Computes nothing and leaves the graph unchanged. Throws UsageError as backward() does.
std::vector<Variable> backward_order(const Variable& loss);

}  // namespace convoy
