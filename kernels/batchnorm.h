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

/// An activation that the kernel of a layer can compute as well.
enum class FusedActivation : std::uint8_t {
  none,  // act(u) = u
  relu,  // act(u) = max(u, 0), and NaN stays NaN
  gelu,  // act(u) = u Phi(u) of u rounded to the type of x, as UnaryOp::gelu;
         // only without a residual
};

/// Options of batch normalization.
struct BatchNormOptions {
  double epsilon = 1e-5;  // added to the variance
  double momentum = 0.1;  // as in PyTorch: running = (1 - momentum) running + momentum batch
  FusedActivation activation = FusedActivation::none;  // follows the addition of the residual
};

}  // namespace convoy

namespace convoy::kernels {

/// A batch norm. Members that a function does not read may be null.
struct BatchNorm {
  ConstView gamma;           // scale
  ConstView beta;            // shift
  View running_mean;         // written by the functions that compute statistics, as is running_var
  View running_var;          // the unbiased variance
  BatchNormOptions options;  // of the layer
  /// f64 [1], n: the functions that compute statistics use the momentum max(options.momentum, 1 / n), so that
  /// the first 1 / momentum batches are averaged and initial values have no weight. Null: options.momentum.
  ConstView batch = {};
};

/// The statistics of a batch, which the backward pass needs too.
struct SavedStatistics {
  View mean;          // of each channel
  View inverse_std;   // 1 / sqrt(var + epsilon)
  View coefficients;  // [2, C]: factor and offset of y = act((x - mean) factor + offset + residual)
};

/// The arrays that the backward functions read. y is the result of the forward pass. It is read only for a
/// ReLU, and may be null without one.
struct BackwardArrays {
  ConstView dy;  // the gradient of y
  ConstView x;   // the input
  ConstView y;   // the result
};

/// The gradients that the backward functions compute. Each may be unwanted (null data). Those of x and of the
/// residual may be the same array, if x was its own residual; that of x is stored first, and that of the
/// residual must be added.
struct BatchNormGradients {
  GradView x;         // of the input
  GradView residual;  // of the residual
  GradView gamma;     // of the scale
  GradView beta;      // of the shift
};

// Computes the mean and the biased variance of x into `saved`, and y from them, and updates the running statistics; the
// running variance uses the unbiased estimate, scaled by n / (n - 1). A null residual adds nothing. The caller must not
// pass exactly one row. With no rows, saves zeros and leaves the running statistics unchanged.
void batch_norm_forward(CpuStream&, const BatchNorm& norm, ConstView x, ConstView residual,
                        const SavedStatistics& saved, View y);
void batch_norm_forward(CudaStream&, const BatchNorm& norm, ConstView x, ConstView residual,
                        const SavedStatistics& saved, View y);

// Computes y from x and the statistics. Reads norm.options alone.
void batch_norm_normalize(CpuStream&, const BatchNorm& norm, ConstView x, ConstView residual,
                          const SavedStatistics& saved, View y);
void batch_norm_normalize(CudaStream&, const BatchNorm& norm, ConstView x, ConstView residual,
                          const SavedStatistics& saved, View y);

// Normalizes x by the running statistics.
void batch_norm_inference(CpuStream&, const BatchNorm& norm, ConstView x, ConstView residual, View y);
void batch_norm_inference(CudaStream&, const BatchNorm& norm, ConstView x, ConstView residual, View y);

// Computes the gradients of batch_norm_forward(). With g = dy act'(u), rounded
// to the type of x, and xh = (x - mean) inverse_std:
//   dresidual = g,  dbeta = sum g,  dgamma = sum g xh,
//   dx = gamma inverse_std (g - dbeta / n - xh dgamma / n).
// saved.coefficients must be null if the forward pass had a residual. A GELU needs them to compute u from x.
// For a ReLU, a GPU computes the sign of y from x and the coefficients, with the same rounding, and reads y
// only if they are null. The CPU always reads y.
void batch_norm_backward(CpuStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                         const SavedStatistics& saved, const BatchNormGradients& gradients);
void batch_norm_backward(CudaStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                         const SavedStatistics& saved, const BatchNormGradients& gradients);

// Computes the gradients of batch_norm_inference(), where the running statistics are constants. Like
// batch_norm_backward(), except that dx = gamma g / sqrt(running_var + epsilon), and that there must be no
// GELU.
void batch_norm_inference_backward(CpuStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                                   const BatchNormGradients& gradients);
void batch_norm_inference_backward(CudaStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                                   const BatchNormGradients& gradients);

// Synchronized batch normalization of a batch that is divided into P shards, one per rank (sync_batch_norm()
// in engine/ops/ops.h). Each direction has two steps. Between them the ranks exchange one vector [1 + 2C]
// each, in f64 on both devices. x, y, residual and their gradients belong to the local shard, which may have
// no rows. The statistics and n belong to the whole batch. batch_norm_normalize() ends the forward pass.

// Computes moments = (n, mean, m2) of the local shard: the number of its rows and, per channel, the mean and
// the sum of squared differences from the mean.
void sync_batch_norm_moments(CpuStream&, ConstView x, View moments);
void sync_batch_norm_moments(CudaStream&, ConstView x, View moments);

// Combines the moments [P, 1 + 2C] of all shards, in their order, by the formula of Chan, Golub and LeVeque
// ("Updating formulae and a pairwise algorithm for computing sample variances", 1979), with d = mean_p -
// mean:
//   mean += d n_p / (n + n_p),  m2 += m2_p + d^2 n n_p / (n + n_p),  n += n_p.
// Then computes `saved` as batch_norm_forward() does, except that a batch of fewer than two rows leaves the
// running statistics unchanged.
void sync_batch_norm_statistics(CpuStream&, const BatchNorm& norm, ConstView moments,
                                const SavedStatistics& saved);
void sync_batch_norm_statistics(CudaStream&, const BatchNorm& norm, ConstView moments,
                                const SavedStatistics& saved);

// Computes sums = (n, sum g, sum g (x - mean)) of the local shard. Also computes the gradients of gamma and
// beta of the local shard, as batch_norm_backward() does. Their sums over all shards are the gradients of the
// batch.
void sync_batch_norm_sums(CpuStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                          const SavedStatistics& saved, View sums, const BatchNormGradients& gradients);
void sync_batch_norm_sums(CudaStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                          const SavedStatistics& saved, View sums, const BatchNormGradients& gradients);

// Computes the gradients of x and the residual as batch_norm_backward() does, from the sums [1 + 2C] that are
// added up over all shards.
void sync_batch_norm_backward(CpuStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                              const SavedStatistics& saved, ConstView sums,
                              const BatchNormGradients& gradients);
void sync_batch_norm_backward(CudaStream&, const BatchNorm& norm, const BackwardArrays& arrays,
                              const SavedStatistics& saved, ConstView sums,
                              const BatchNormGradients& gradients);

}  // namespace convoy::kernels
