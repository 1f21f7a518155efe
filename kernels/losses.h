// Losses that compare each element of x with a target, and their sums. x and the target have one shape and
// type. bf16 and (on a GPU) f16 are computed in f32; sums are f64 and are rounded once.
#pragma once

#include <cstdint>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// The loss of an element x and its target t.
enum class ElementLoss : std::uint8_t {
  squared_error,                     // (x - t)^2
  binary_cross_entropy_with_logits,  // -t log s(x) - (1 - t) log(1 - s(x)), with s the logistic sigmoid
  kl_divergence,                     // t (log t - x), and 0 for t = 0: x is a log-probability
};

// y (the shape of x) = the loss of each element.
void element_loss(CpuStream&, ElementLoss loss, ConstView x, ConstView target, View y);
void element_loss(CudaStream&, ElementLoss loss, ConstView x, ConstView target, View y);

// y [1] = factor times the sum of the losses of all elements.
void element_loss_sum(CpuStream&, ElementLoss loss, ConstView x, ConstView target, double factor, View y);
void element_loss_sum(CudaStream&, ElementLoss loss, ConstView x, ConstView target, double factor, View y);

// Computes the gradients of x and of the target, either of which may be unwanted: dy factor times the
// derivative of each loss. dy has the shape of x, or one element for all. The derivative by a target of 0 of
// kl_divergence is set to 0.
void element_loss_backward(CpuStream&, ElementLoss loss, ConstView dy, double factor, ConstView x,
                           ConstView target, GradView dx, GradView dtarget);
void element_loss_backward(CudaStream&, ElementLoss loss, ConstView dy, double factor, ConstView x,
                           ConstView target, GradView dx, GradView dtarget);

}  // namespace convoy::kernels
