// The gradient in front of a ReLU that is fused into an op. Private to engine/ops.
#pragma once

#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::detail {

/// Returns dy [y > 0], the gradient in front of the ReLU whose result is y. Returns dy if y is undefined,
/// which means that there is no ReLU.
inline Tensor before_relu(const Tensor& dy, const Tensor& y) {
  if (!y.defined()) return dy;
  const Tensor g = Tensor::empty_like(dy);
  on(dy.stream(), [&](auto& s) { kernels::relu_backward(s, dy.view(), y.view(), GradView(g.view())); });
  return g;
}

}  // namespace convoy::detail
