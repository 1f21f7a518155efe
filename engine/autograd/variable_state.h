// What a Variable handle points to. Private to engine/autograd.
#pragma once

#include <optional>

#include "engine/autograd/variable.h"

namespace convoy {

struct Variable::State {
  std::shared_ptr<Node> creator;  // null for a leaf
  bool requires_grad = false;

  // Of a recorded result: what its gradient is like, whoever still holds its value.
  Shape shape;
  DType dtype = DType::f32;
  std::optional<Device> device;

  // Leaves only.
  Tensor value;
  Tensor half_copy;
  Tensor grad;
  bool grad_is_fresh = false;
  bool grad_is_lent = false;  // by set_grad_storage()
  std::function<void()> grad_begin, grad_ready;
  std::function<void()> arrive;  // empty: the value is here
};

}  // namespace convoy
