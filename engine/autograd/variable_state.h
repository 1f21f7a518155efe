// What a Variable handle points to. Private to engine/autograd.
#pragma once

#include "engine/autograd/variable.h"

namespace convoy {

struct Variable::State {
  Tensor value;
  std::shared_ptr<Node> creator;  // null for a leaf
  bool requires_grad = false;

  // Leaves only.
  Tensor half_copy;
  Tensor grad;
  bool grad_is_fresh = false;
  std::function<void()> grad_begin, grad_ready;
  std::function<void()> arrive;  // empty: the value is here
};

}  // namespace convoy
