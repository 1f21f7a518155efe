// GradTarget, the gradient behind a GradSlot. Private to engine/autograd.
#pragma once

#include <utility>

#include "convoy/engine/autograd/variable_state.h"

namespace convoy {

/// The gradient of one variable while backward accumulates it.
struct GradTarget {
  Variable variable;
  int pending = 0;         // consumers that have not run yet
  Tensor gradient;         // the leaf's own storage, or the sum of the contributions so far
  bool has_value = false;  // `gradient` holds a value: further contributions are added

  bool is_leaf() const { return variable.is_leaf(); }

  /// Ensures that `gradient` is a writable tensor, counts one contribution, and returns its mode.
  GradMode prepare() {
    if (is_leaf() && !has_value) run_grad_begin_hook();
    if (gradient.defined() && is_half(gradient.dtype()) && !is_half(variable.dtype()))  // kept unconverted
      gradient = has_value ? gradient.to(variable.dtype()) : Tensor();
    if (!gradient.defined()) {
      gradient = Tensor::empty(variable.shape(), variable.dtype(), variable.context());
    } else if (has_value && !is_leaf() && !gradient.is_only_owner()) {
      gradient = gradient.clone();  // aliased by alias_or_accumulate(): other users need the old value
    }
    return std::exchange(has_value, true) ? GradMode::accumulate : GradMode::overwrite;
  }

  /// Makes `half` the gradient if this is the first contribution to a leaf, the leaf's low-precision copy has
  /// the type of `half`, and no other storage is set for the gradient. Returns whether it did.
  bool keep_unconverted(const Tensor& half) {
    if (!is_leaf() || has_value) return false;
    const Variable::State& leaf = *variable.state_;
    const Tensor& copy = leaf.low_precision_copy;
    if (!copy.defined() || copy.dtype() != half.dtype()) return false;
    if (leaf.grad_is_borrowed || leaf.grad_begin_hook) return false;
    gradient = half;
    return has_value = true;
  }

  /// The hook may set the gradient's storage.
  void run_grad_begin_hook() {
    Variable::State& leaf = *variable.state_;
    if (!leaf.grad_begin_hook) return;
    leaf.grad_begin_hook();
    gradient = leaf.grad;
  }
};

}  // namespace convoy
