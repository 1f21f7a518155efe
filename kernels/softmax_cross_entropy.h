// Softmax and cross-entropy in one pass, with label smoothing (Szegedy et al., arXiv:1512.00567): the target
// is 1 - s + s / C for the label and s / C for every other of the C classes. logits [N, C], labels i32 [N].
// The CPU takes f32, f64 and bf16, a GPU f16 too; of half types losses, log_sum_exp and dloss are f32, else
// of the logits' type.
#pragma once

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

// losses [N] = log_sum_exp - sum_c target_c logit_c;  log_sum_exp [N], kept for backward;
// correct (i32 [N]) = 1 where the first largest logit is the label's.
void softmax_cross_entropy_forward(CpuStream&, ConstView logits, ConstView labels, double smoothing,
                                   View losses, View log_sum_exp, View correct);
void softmax_cross_entropy_forward(CudaStream&, ConstView logits, ConstView labels, double smoothing,
                                   View losses, View log_sum_exp, View correct);

// dlogits = dloss (softmax - target); dloss [1], the gradient of the sum of the losses.
void softmax_cross_entropy_backward(CpuStream&, ConstView dloss, ConstView logits, ConstView labels,
                                    ConstView log_sum_exp, double smoothing, GradView dlogits);
void softmax_cross_entropy_backward(CudaStream&, ConstView dloss, ConstView logits, ConstView labels,
                                    ConstView log_sum_exp, double smoothing, GradView dlogits);

// y [N, C] = softmax of each row of x: for predictions.
void softmax(CpuStream&, ConstView x, View y);
void softmax(CudaStream&, ConstView x, View y);

}  // namespace convoy
