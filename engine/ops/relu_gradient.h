// The backward of an op that ends in a ReLU of its own. Private to engine/ops.
#pragma once

#include "engine/tensor/tensor.h"
#include "kernels/elementwise.h"

namespace convoy::detail {

/// dy in front of the ReLU whose result is y, dy [y > 0]; dy itself where y is undefined: no ReLU.
inline Tensor before_relu(const Tensor& dy, const Tensor& y) {
  if (!y.defined()) return dy;
  const Tensor g = Tensor::empty_like(dy);
  on(dy.stream(), [&](auto& s) { relu_backward(s, dy.view(), y.view(), GradView(g.view())); });
  return g;
}

}  // namespace convoy::detail
