// Variable::State, what a Variable handle points to, and what activation checkpointing needs. Private to
// engine/autograd.
#pragma once

#include <optional>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

struct Variable::State {
  std::shared_ptr<Node> creator;  // null for a leaf
  bool requires_grad = false;

  // Recorded results only: the type of the gradient, also after the value has been released.
  Shape shape;
  DType dtype = DType::f32;
  std::optional<DeviceContext> context;

  // Leaves only.
  Tensor value;
  Tensor low_precision_copy;
  Tensor grad;
  bool grad_is_new = false;       // written by a backward, not consumed yet
  bool grad_is_borrowed = false;  // its storage was set by set_grad_storage()
  std::function<void()> grad_begin_hook, grad_ready_hook;
  bool ready_on_side_stream = false;  // of grad_ready_hook
  std::function<void()> ready_hook;   // empty: the value is ready
};

/// Computes the gradients of a part of the network inside the backward function of a recorded operation,
/// whose pass continues afterwards. `result` was recorded meanwhile, from the leaves `inner`. Contributions
/// to the gradient of inner[i] are those to the gradient of outer[i], an input of the operation.
void backward_part(const Variable& result, const Tensor& gradient, std::span<const Variable> inner,
                   std::span<const Variable> outer);

}  // namespace convoy
