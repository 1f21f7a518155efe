// Losses that compare each element of x with a target of the same shape and floating-point type. Other
// arguments throw UsageError. For threads and the meta device, see ops.h.
#pragma once

#include <cstdint>

#include "convoy/engine/autograd/variable.h"

namespace convoy {

/// The result of a loss.
enum class Reduction : std::uint8_t {
  mean,  // of the losses of all elements, [1]; UsageError if there are none
  sum,   // of the losses of all elements, [1]
  none,  // the loss of each element, in the shape of x
};

/// Returns (x - target)^2.
Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean);
/// Returns -t log s(x) - (1 - t) log(1 - s(x)) for logits x and targets t, probabilities, with s the logistic
/// sigmoid. Computed so that large logits neither overflow nor lose precision.
Variable binary_cross_entropy_with_logits(const Variable& logits, const Variable& target,
                                          Reduction reduction = Reduction::mean);
/// Returns q (log q - log_p), and 0 where q is 0: the terms of the Kullback-Leibler divergence of the
/// distribution q from one with the log-probabilities log_p. As in PyTorch, the mean is over all elements;
/// for the mean over N samples, divide the sum by N. The gradient of q is 0 where q is 0.
Variable kl_divergence(const Variable& log_p, const Variable& q, Reduction reduction = Reduction::mean);

}  // namespace convoy
