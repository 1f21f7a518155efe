// The gradients in front of a bias and a ReLU that are fused into an op. Private to engine/ops.
#pragma once

#include "convoy/engine/autograd/variable.h"
#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/reduce.h"

namespace convoy::detail {

/// Returns dy [y > 0], the gradient in front of the ReLU whose result is y, or dy if y is undefined, which
/// means that there is no ReLU. Contributes the sums of its rows to `bias`, if the bias wants a gradient.
inline Tensor before_bias(const Tensor& dy, const Tensor& y, GradSlot bias) {
  const Tensor g = y.defined() ? Tensor::empty_like(dy) : dy;
  on(dy.stream(), [&](auto& s) {
    if (y.defined()) {
      kernels::relu_bias_backward(s, dy.view(), y.view(), g.view(), bias.claim());
    } else {
      kernels::sum_rows(s, dy.view(), bias.claim());
    }
  });
  return g;
}

}  // namespace convoy::detail
