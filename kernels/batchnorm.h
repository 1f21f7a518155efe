// Batch normalization (Ioffe and Szegedy, arXiv:1502.03167) over the last axis, with the addition and the
// activation that follow it in a residual block (He et al., arXiv:1512.03385, figure 2):
//   y = act(gamma (x - mean) / sqrt(var + epsilon) + beta + residual)
// x, y, residual and their gradients are [rows, C] or [N, H, W, C], all else [C]. What is [C] has the type
// that is computed in: that of x, but f32 where x is bf16 or (on a GPU) f16. Statistics are taken about a
// shifted origin, on the CPU in f64, on the GPU in f32 for few rows and from there in f64: no cancellation
// for large means. The result is rounded to x's type once.
#pragma once

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // PyTorch's sense: running = (1 - momentum) running + momentum batch
  bool relu = false;      // act(u) = max(u, 0), where NaN stays NaN; else act(u) = u
};

// Normalizes by the batch's own mean and (biased) variance, saves mean and 1 / sqrt(var + epsilon) for
// backward, and updates the running statistics, the variance with the unbiased n / (n - 1). n = 1 row is the
// caller's error; no rows at all save zeros and leave the running statistics alone. Null residual: nothing is
// added.
void batch_norm_forward(CpuStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual, View y,
                        View mean, View inverse_std, View running_mean, View running_var,
                        BatchNormOptions options);
void batch_norm_forward(CudaStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual, View y,
                        View mean, View inverse_std, View running_mean, View running_var,
                        BatchNormOptions options);

// Normalizes by the running statistics.
void batch_norm_inference(CpuStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                          ConstView running_mean, ConstView running_var, View y, BatchNormOptions options);
void batch_norm_inference(CudaStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                          ConstView running_mean, ConstView running_var, View y, BatchNormOptions options);

// With g = dy [y > 0] where there is a ReLU, else g = dy, and xh = (x - mean) inverse_std:
// dresidual = g,  dbeta = sum g,  dgamma = sum g xh,
// dx = gamma inverse_std (g - dbeta / n - xh dgamma / n).
// Any of the four may be unwanted (null data). y, the result of forward, is read for the ReLU alone and may
// else be null. dx and dresidual may be one array (x was its own residual): dx goes first.
void batch_norm_backward(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma, ConstView mean,
                         ConstView inverse_std, GradView dx, GradView dresidual, GradView dgamma,
                         GradView dbeta, BatchNormOptions options);
void batch_norm_backward(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma, ConstView mean,
                         ConstView inverse_std, GradView dx, GradView dresidual, GradView dgamma,
                         GradView dbeta, BatchNormOptions options);

// The backward of batch_norm_inference (running statistics are constants): the same but for
// dx = gamma g / sqrt(running_var + epsilon).
void batch_norm_inference_backward(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dresidual, GradView dgamma, GradView dbeta,
                                   BatchNormOptions options);
void batch_norm_inference_backward(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dresidual, GradView dgamma, GradView dbeta,
                                   BatchNormOptions options);

// The same for a batch in P parts, such as the shares of a job's ranks (engine/ops/ops.h, sync_batch_norm):
// of each direction two halves, between which the parts exchange a vector [1 + 2C] each, in f64 on both
// devices. x, y, residual and their gradients are those of one part, which may have no rows; statistics and n
// are those of all.

// moments = (n, mean, m2) of this part: its rows, and of each channel their mean and the sum of squared
// differences from it.
void batch_norm_moments(CpuStream&, ConstView x, View moments);
void batch_norm_moments(CudaStream&, ConstView x, View moments);

// moments [P, 1 + 2C], of all parts, are combined in their order by the formula of Chan, Golub and LeVeque
// ("Updating formulae and a pairwise algorithm for computing sample variances", 1979), with d = mean_p -
// mean:
//   mean += d n_p / (n + n_p),  m2 += m2_p + d^2 n n_p / (n + n_p),  n += n_p.
// What follows is batch_norm_forward, but that fewer than two rows in all leave the running statistics alone.
void batch_norm_forward_of_part(CpuStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                                ConstView moments, View y, View mean, View inverse_std, View running_mean,
                                View running_var, BatchNormOptions options);
void batch_norm_forward_of_part(CudaStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                                ConstView moments, View y, View mean, View inverse_std, View running_mean,
                                View running_var, BatchNormOptions options);

// sums = (n, sum g, sum g (x - mean)) of this part, and as in batch_norm_backward dgamma and dbeta, of this
// part too: who adds up the parts' gradients has those of the batch.
void batch_norm_gradient_sums(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView mean,
                              ConstView inverse_std, View sums, GradView dgamma, GradView dbeta,
                              BatchNormOptions options);
void batch_norm_gradient_sums(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView mean,
                              ConstView inverse_std, View sums, GradView dgamma, GradView dbeta,
                              BatchNormOptions options);

// dx and dresidual as in batch_norm_backward, from the sums [1 + 2C] added up over the parts.
void batch_norm_backward_of_part(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                 ConstView mean, ConstView inverse_std, ConstView sums, GradView dx,
                                 GradView dresidual, BatchNormOptions options);
void batch_norm_backward_of_part(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                 ConstView mean, ConstView inverse_std, ConstView sums, GradView dx,
                                 GradView dresidual, BatchNormOptions options);

}  // namespace convoy
