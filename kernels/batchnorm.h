// Batch normalization (Ioffe and Szegedy, arXiv:1502.03167) over the last axis: x [rows, C] or [N, H, W, C],
// all else [C]. y = gamma (x - mean) / sqrt(var + epsilon) + beta. Statistics are taken about a shifted
// origin in f64 for f32 data: no cancellation for large means.
#pragma once

#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct BatchNormOptions {
  double epsilon = 1e-5;
  double momentum = 0.1;  // PyTorch's sense: running = (1 - momentum) running + momentum batch
};

// Normalizes by the batch's own mean and (biased) variance, saves mean and 1 / sqrt(var + epsilon) for
// backward, and updates the running statistics, the variance with the unbiased n / (n - 1). n = 1 row is the
// caller's error; no rows at all leave the running statistics alone.
void batch_norm_forward(CpuStream&, ConstView x, ConstView gamma, ConstView beta, View y, View mean,
                        View inverse_std, View running_mean, View running_var, BatchNormOptions options);
void batch_norm_forward(CudaStream&, ConstView x, ConstView gamma, ConstView beta, View y, View mean,
                        View inverse_std, View running_mean, View running_var, BatchNormOptions options);

// Normalizes by the running statistics.
void batch_norm_inference(CpuStream&, ConstView x, ConstView gamma, ConstView beta, ConstView running_mean,
                          ConstView running_var, View y, BatchNormOptions options);
void batch_norm_inference(CudaStream&, ConstView x, ConstView gamma, ConstView beta, ConstView running_mean,
                          ConstView running_var, View y, BatchNormOptions options);

// With xh = (x - mean) inverse_std:  dbeta = sum dy,  dgamma = sum dy xh,
// dx = gamma inverse_std (dy - dbeta / n - xh dgamma / n).
// Any of the three may be unwanted (null data).
void batch_norm_backward(CpuStream&, ConstView dy, ConstView x, ConstView gamma, ConstView mean,
                         ConstView inverse_std, GradView dx, GradView dgamma, GradView dbeta);
void batch_norm_backward(CudaStream&, ConstView dy, ConstView x, ConstView gamma, ConstView mean,
                         ConstView inverse_std, GradView dx, GradView dgamma, GradView dbeta);

// The backward of batch_norm_inference (running statistics are constants): dx = gamma dy / sqrt(running_var +
// eps), dgamma = sum dy xh, dbeta = sum dy.
void batch_norm_inference_backward(CpuStream&, ConstView dy, ConstView x, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dgamma, GradView dbeta, BatchNormOptions options);
void batch_norm_inference_backward(CudaStream&, ConstView dy, ConstView x, ConstView gamma,
                                   ConstView running_mean, ConstView running_var, GradView dx,
                                   GradView dgamma, GradView dbeta, BatchNormOptions options);

}  // namespace convoy
