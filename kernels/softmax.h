// Softmax and log-softmax of the rows of x [rows, C], with the largest element of each row subtracted first,
// so that exp cannot overflow. The types are f32, f64, bf16 and, on a GPU, f16.
#pragma once

#include <cstdint>

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

// Cross-entropy of a softmax in one pass, for logits [N, C]. The target of class c is w_c ((1 - s) p_c + s /
// C), with label smoothing s (Szegedy et al., arXiv:1512.00567) and class weights w. p_c is given, or 1 for
// the label and 0 for the other classes. The CPU supports f32, f64 and bf16, and a GPU also f16. losses,
// log_sum_exp, total, dloss and what belongs to the target are f32 if the logits are f16 or bf16, otherwise
// they have the type of the logits.

/// The targets of N rows, and what becomes of their losses.
struct CrossEntropyTarget {
  ConstView of_rows;                 // labels i32 [N], or p [N, C]
  double smoothing = 0;              // s, in [0, 1)
  double scale = 1;                  // the factor of the sum of the losses
  ConstView class_weights = {};      // w [C]; null: all are 1
  std::int32_t ignore_index = -100;  // the label of rows without loss and gradient
  bool of_log_p = false;  // the logits are log-probabilities: log(sum_k exp(logit_k)) is taken as 0
};

// Computes losses [N] = sum_c target_c (log(sum_k exp(logit_k)) - logit_c), and log_sum_exp [N, 2], which the
// backward pass needs: the largest logit, and the logarithm of the sum of exp(logit - largest). Their sum
// would lose the digits by which logits with a large common offset differ. correct (i32 [N]) = 1 if the first
// maximum of the logits is at the label, or at the first maximum of p, else 0. total [1] = scale times the
// sum of the losses, which is rounded as by sum() (reduce.h) before; 0 if N = 0. correct_count [1], of the
// type of total, = the sum of correct, exact up to 2^24. row_weights [N] = w at the label, 0 for an ignored
// row, and 1 for p. The last two are not computed if undefined.
void softmax_cross_entropy_forward(CpuStream&, ConstView logits, const CrossEntropyTarget& target,
                                   View losses, View log_sum_exp, View correct, View total,
                                   View correct_count = {}, View row_weights = {});
void softmax_cross_entropy_forward(CudaStream&, ConstView logits, const CrossEntropyTarget& target,
                                   View losses, View log_sum_exp, View correct, View total,
                                   View correct_count = {}, View row_weights = {});

// Computes dlogits = dloss scale (softmax sum_c target_c - target). dloss is the gradient with respect to
// total, [1], or to each loss, [N].
void softmax_cross_entropy_backward(CpuStream&, ConstView dloss, ConstView logits,
                                    const CrossEntropyTarget& target, ConstView log_sum_exp,
                                    GradView dlogits);
void softmax_cross_entropy_backward(CudaStream&, ConstView dloss, ConstView logits,
                                    const CrossEntropyTarget& target, ConstView log_sum_exp,
                                    GradView dlogits);

}  // namespace convoy::kernels
