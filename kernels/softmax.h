// Softmax and log-softmax of the rows of x [rows, C], with the largest element of each row subtracted first,
// so that exp cannot overflow. The types are f32, f64, bf16 and, on a GPU, f16.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

// y[c] = exp(x[c]) / sum over k of exp(x[k])
void softmax(CpuStream&, ConstView x, View y);
void softmax(CudaStream&, ConstView x, View y);
// dx[c] = y[c] (dy[c] - sum over k of dy[k] y[k])
void softmax_backward(CpuStream&, ConstView dy, ConstView y, GradView dx);
void softmax_backward(CudaStream&, ConstView dy, ConstView y, GradView dx);

// y[c] = x[c] - log(sum over k of exp(x[k]))
void log_softmax(CpuStream&, ConstView x, View y);
void log_softmax(CudaStream&, ConstView x, View y);
// dx[c] = dy[c] - exp(y[c]) (sum over k of dy[k])
void log_softmax_backward(CpuStream&, ConstView dy, ConstView y, GradView dx);
void log_softmax_backward(CudaStream&, ConstView dy, ConstView y, GradView dx);

}  // namespace convoy::kernels

// Cross-entropy of a softmax in one pass, with label smoothing s (Szegedy et al., arXiv:1512.00567). The
// target is 1 - s + s / C for the label and s / C for each of the other C - 1 classes. logits are [N, C] and
// labels i32 [N]. The CPU supports f32, f64 and bf16, and a GPU also f16. losses, log_sum_exp, total and
// dloss are f32 if the logits are f16 or bf16, otherwise they have the type of the logits.

namespace convoy {

/// Options of the cross-entropy loss.
struct CrossEntropyOptions {
  double smoothing = 0;  // label smoothing, in [0, 1)
  double scale = 1;      // the factor of the sum of the losses; 1 / N gives their mean
};

namespace kernels {

// Computes losses [N] = log(sum_c exp(logit_c)) - sum_c target_c logit_c, and log_sum_exp [N, 2], which the
// backward pass needs: the largest logit, and the logarithm of the sum of exp(logit - largest). Their sum would
// lose the digits by which logits with a large common offset differ. correct (i32 [N]) = 1 if the first maximum
// of the logits is that of the label, else 0. total [1] = scale times the sum of the losses, which is rounded as
// by sum() (reduce.h) before; 0 if N = 0. correct_count [1], of the type of total, = the sum of correct, exact
// up to 2^24; not computed if undefined.
void softmax_cross_entropy_forward(CpuStream&, ConstView logits, ConstView labels, CrossEntropyOptions,
                                   View losses, View log_sum_exp, View correct, View total,
                                   View correct_count = {});
void softmax_cross_entropy_forward(CudaStream&, ConstView logits, ConstView labels, CrossEntropyOptions,
                                   View losses, View log_sum_exp, View correct, View total,
                                   View correct_count = {});

// Computes dlogits = dloss scale (softmax - target). dloss [1] is the gradient with respect to total.
void softmax_cross_entropy_backward(CpuStream&, ConstView dloss, ConstView logits, ConstView labels,
                                    ConstView log_sum_exp, CrossEntropyOptions, GradView dlogits);
void softmax_cross_entropy_backward(CudaStream&, ConstView dloss, ConstView logits, ConstView labels,
                                    ConstView log_sum_exp, CrossEntropyOptions, GradView dlogits);

}  // namespace kernels
}  // namespace convoy
