// Batch normalization (Ioffe and Szegedy, arXiv:1502.03167) over the last axis, fused with the addition and
// the activation that follow it in a residual block (He et al., arXiv:1512.03385, figure 2):
//   y = act(gamma (x - mean) / sqrt(var + epsilon) + beta + residual)
// x, y, residual and their gradients are [rows, C] or [N, H, W, C]; all other arguments are [C]. The [C]
// arguments have the type in which kernels compute: f32 if x is bf16 or (on a GPU) f16, otherwise the type of
// x. The result is rounded to the type of x once; with a GELU, its argument is rounded too. Statistics are
// computed about a shifted origin, so that large means do not cancel, by the CPU in f64. A GPU uses f32 for
// few rows and combines these partial results in f64.
#pragma once

#include <cstdint>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// The activation act of batch normalization.
enum class NormActivation : std::uint8_t {
  none,  // act(u) = u
  relu,  // act(u) = max(u, 0), and NaN stays NaN
  gelu,  // act(u) = u Phi(u) of u rounded to the type of x, as UnaryOp::gelu;
         // only without a residual
};

/// Options of batch normalization.
struct BatchNormOptions {
  double epsilon = 1e-5;  // added to the variance
  double momentum = 0.1;  // as in PyTorch: running = (1 - momentum) running + momentum batch
  NormActivation activation = NormActivation::none;  // follows the addition of the residual
};

}  // namespace convoy

namespace convoy::kernels {

// Normalizes x by the mean and the biased variance of the batch. Saves mean and inverse_std = 1 / sqrt(var +
// epsilon) for the backward pass, and coefficients [2, C]: the factor and the offset with which
//   y = act((x - mean) factor + offset + residual).
// Updates the running statistics; the running variance uses the unbiased estimate, scaled by n / (n - 1). The
// caller must not pass exactly one row. With no rows, saves zeros and leaves the running statistics
// unchanged. A null residual adds nothing.
void batch_norm_forward(CpuStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual, View y,
                        View mean, View inverse_std, View coefficients, View running_mean, View running_var,
                        BatchNormOptions options);
void batch_norm_forward(CudaStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual, View y,
                        View mean, View inverse_std, View coefficients, View running_mean, View running_var,
                        BatchNormOptions options);

// The two halves of batch_norm_forward, which gives the same bits. The first half computes all of its results
// but y, and does not read options.activation. The second half computes y from x, mean and coefficients.
void batch_norm_statistics(CpuStream&, ConstView x, ConstView gamma, ConstView beta, View mean,
                           View inverse_std, View coefficients, View running_mean, View running_var,
                           BatchNormOptions options);
void batch_norm_statistics(CudaStream&, ConstView x, ConstView gamma, ConstView beta, View mean,
                           View inverse_std, View coefficients, View running_mean, View running_var,
                           BatchNormOptions options);
void batch_norm_normalize(CpuStream&, ConstView x, ConstView mean, ConstView coefficients, ConstView residual,
                          View y, NormActivation activation);
void batch_norm_normalize(CudaStream&, ConstView x, ConstView mean, ConstView coefficients,
                          ConstView residual, View y, NormActivation activation);

// Normalizes x by the running statistics.
void batch_norm_inference(CpuStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                          ConstView running_mean, ConstView running_var, View y, BatchNormOptions options);
void batch_norm_inference(CudaStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                          ConstView running_mean, ConstView running_var, View y, BatchNormOptions options);

// Computes the gradients of batch_norm_forward. With g = dy act'(u), rounded to the type of x, and
// xh = (x - mean) inverse_std:
//   dresidual = g,  dbeta = sum g,  dgamma = sum g xh,
//   dx = gamma inverse_std (g - dbeta / n - xh dgamma / n).
// Each of the four may be unwanted (null data). y is the result of the forward pass. It is read only for a
// ReLU, and may be null without one. dx and dresidual may be the same array, if x was its own residual; dx is
// stored first, and dresidual must be added.
//
// coefficients are those of the forward pass. They must be null if it had a residual. A GELU needs them to
// compute u from x. For a ReLU, a GPU computes the sign of y from x and the coefficients, with the same
// rounding, and reads y only if they are null. The CPU always reads y.
void batch_norm_backward(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma, ConstView mean,
                         ConstView inverse_std, ConstView coefficients, GradView dx, GradView dresidual,
                         GradView dgamma, GradView dbeta, BatchNormOptions options);
void batch_norm_backward(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma, ConstView mean,
                         ConstView inverse_std, ConstView coefficients, GradView dx, GradView dresidual,
                         GradView dgamma, GradView dbeta, BatchNormOptions options);

// Computes the gradients of batch_norm_inference, where the running statistics are constants. Like
// batch_norm_backward, except that dx = gamma g / sqrt(running_var + epsilon), and that there must be no GELU.
void batch_norm_inference_backward(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dresidual, GradView dgamma, GradView dbeta,
                                   BatchNormOptions options);
void batch_norm_inference_backward(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dresidual, GradView dgamma, GradView dbeta,
                                   BatchNormOptions options);

// Synchronized batch normalization of a batch that is divided into P shards, one per rank (sync_batch_norm in
// engine/ops/ops.h). Each direction has two steps. Between them the ranks exchange one vector [1 + 2C] each,
// in f64 on both devices. x, y, residual and their gradients belong to the local shard, which may have no
// rows. The statistics and n belong to the whole batch.

// Computes moments = (n, mean, m2) of the local shard: the number of its rows and, per channel, the mean and
// the sum of squared differences from the mean.
void sync_batch_norm_stats(CpuStream&, ConstView x, View moments);
void sync_batch_norm_stats(CudaStream&, ConstView x, View moments);

// Combines the moments [P, 1 + 2C] of all shards, in their order, by the formula of Chan, Golub and LeVeque
// ("Updating formulae and a pairwise algorithm for computing sample variances", 1979), with d = mean_p -
// mean:
//   mean += d n_p / (n + n_p),  m2 += m2_p + d^2 n n_p / (n + n_p),  n += n_p.
// Then does the same as batch_norm_forward, except that a batch of fewer than two rows leaves the running
// statistics unchanged.
void sync_batch_norm_elemt(CpuStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                           ConstView moments, View y, View mean, View inverse_std, View coefficients,
                           View running_mean, View running_var, BatchNormOptions options);
void sync_batch_norm_elemt(CudaStream&, ConstView x, ConstView gamma, ConstView beta, ConstView residual,
                           ConstView moments, View y, View mean, View inverse_std, View coefficients,
                           View running_mean, View running_var, BatchNormOptions options);

// Computes sums = (n, sum g, sum g (x - mean)) of the local shard. Also computes dgamma and dbeta of the
// local shard, as in batch_norm_backward. Their sums over all shards are the gradients of the batch.
void sync_batch_norm_backward_reduce(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView mean,
                                     ConstView inverse_std, ConstView coefficients, View sums,
                                     GradView dgamma, GradView dbeta, BatchNormOptions options);
void sync_batch_norm_backward_reduce(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView mean,
                                     ConstView inverse_std, ConstView coefficients, View sums,
                                     GradView dgamma, GradView dbeta, BatchNormOptions options);

// Computes dx and dresidual as in batch_norm_backward, from the sums [1 + 2C] that are added up over all
// shards.
void sync_batch_norm_backward_elemt(CpuStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                    ConstView mean, ConstView inverse_std, ConstView coefficients,
                                    ConstView sums, GradView dx, GradView dresidual,
                                    BatchNormOptions options);
void sync_batch_norm_backward_elemt(CudaStream&, ConstView dy, ConstView x, ConstView y, ConstView gamma,
                                    ConstView mean, ConstView inverse_std, ConstView coefficients,
                                    ConstView sums, GradView dx, GradView dresidual,
                                    BatchNormOptions options);

}  // namespace convoy::kernels
