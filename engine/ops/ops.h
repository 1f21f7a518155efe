// Differentiable operations on variables. Each op checks shapes, dtypes and devices, allocates its result,
// calls kernels, and records its backward. Ops throw UsageError if an argument does not fit. If an argument
// is on the meta device, the result is there too, and no kernel runs; the others may be on any device. Images
// are [N, H, W, C]. An op enqueues its kernels on the compute stream of its first argument's context and, on
// a GPU, does not wait for them. One thread at a time calls ops on one context; threads with contexts of
// their own may call ops at once.
#pragma once

#include "convoy/engine/autograd/variable.h"
#include "convoy/engine/ops/arithmetic.h"
#include "convoy/engine/ops/attention.h"
#include "convoy/engine/ops/conv2d_transpose.h"
#include "convoy/engine/ops/indexing.h"
#include "convoy/engine/ops/losses.h"
#include "convoy/engine/ops/movement.h"
#include "convoy/engine/ops/normalization.h"
#include "convoy/engine/ops/reductions.h"
#include "convoy/engine/tensor/process_group.h"
#include "convoy/kernels/base/random.h"
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/pool2d.h"
#include "convoy/kernels/softmax_cross_entropy.h"

namespace convoy {

// ---- Elementwise operations ----

/// Returns max(x, 0). The gradient is 0 at 0. NaN is propagated.
Variable relu(const Variable& x);
/// Returns x Phi(x), where Phi is the normal distribution function, without approximation (Hendrycks and
/// Gimpel, arXiv:1606.08415).
Variable gelu(const Variable& x);
/// Returns x sigmoid(x).
Variable silu(const Variable& x);
/// Returns x min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244).
Variable hardswish(const Variable& x);
/// Returns the hyperbolic tangent.
Variable tanh(const Variable& x);
/// Returns 1 / (1 + exp(-x)).
Variable sigmoid(const Variable& x);
/// Zeroes elements of x [N, …] with probability `p` in [0, 1) and scales the others by 1 / (1 - p). The draws
/// are keyed by `random` and by sample_ids, i32 [N] (see kernels/elementwise.h). If `device_epoch`, i32 [1],
/// is defined it becomes random.cell, and must hold the same number when backward runs.
Variable dropout(const Variable& x, const Tensor& sample_ids, double p, Random random,
                 const Tensor& device_epoch = {});
/// Converts x to another floating-point type. Backward converts the gradient back. Uses the low-precision
/// copy of a leaf if it has one of that type.
Variable cast(const Variable& x, DType dtype);

// ---- Matrix multiplication and convolution ----

/// Multiplies a [M, K] by b [K, N]. With a [..., M, K] and b [..., K, N], multiplies each pair of matrices;
/// one of the factors may be a single matrix, which is used for all.
Variable matmul(const Variable& a, const Variable& b);
/// Returns x weight^T + bias, [..., out], for x [..., in] of at least two dimensions, weight [out, in] and
/// bias [out] or undefined; with `with_relu`, max(x weight^T + bias, 0).
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, bool with_relu = false);
/// Convolves x [N, H, W, I] with filter [O, kH, kW, I] and adds bias, [O] or undefined; with options.relu,
/// applies max(., 0) to the result.
Variable conv2d(const Variable& x, const Variable& filter, const Variable& bias, Conv2dOptions options = {});
/// Returns the size of one axis after a convolution or pooling window, (size + 2 padding - kernel) / stride +
/// 1, rounded down. Throws UsageError if the window does not fit.
std::int64_t window_output_size(std::int64_t size, std::int64_t kernel, int stride, int padding);

// ---- Normalization ----

/// Running statistics, [C] each. Training updates them in place.
struct BatchNormStatistics {
  Tensor running_mean;  // moving average of the batch means
  Tensor running_var;   // moving average of the unbiased batch variances
};
/// Normalizes x [N, …, C] by batch statistics if `training`, else by running statistics. Adds `residual`, of
/// the shape of x, unless it is undefined. All other arguments are [C], f32 if x is f16 or bf16, else of the
/// type of x. See kernels/batchnorm.h for the formulas. Throws UsageError in training if x has one value per
/// channel.
Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormStatistics& running, bool training, BatchNormOptions options = {},
                    const Variable& residual = {});
/// Computes batch_norm in training for a batch that is sharded over the ranks of `group`: normalizes this
/// rank's x, which may have no rows, by the statistics of the global batch. A collective operation: all ranks
/// must call it, and if one records a backward, all must record and run it. The gradients of gamma and beta
/// are this rank's contributions to those of the global batch.
Variable sync_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                         const BatchNormStatistics& running, const std::shared_ptr<ProcessGroup>& group,
                         BatchNormOptions options = {}, const Variable& residual = {});

// ---- Pooling ----

/// Returns the maximum of each window of x [N, H, W, C]: [N, oH, oW, C] with sizes of window_output_size().
/// The gradient goes to the first maximum. Padding is never a maximum, and NaN is larger than any number.
/// Throws UsageError if the padding exceeds half of the kernel.
Variable max_pool2d(const Variable& x, Pool2dOptions options);
/// Returns the mean of each window, in the shape of max_pool2d(). The padding counts as zeros. Throws
/// UsageError like max_pool2d().
Variable avg_pool2d(const Variable& x, Pool2dOptions options);
/// Averages [N, H, W, C] over all pixels to [N, C]. Throws UsageError if there are no pixels.
Variable global_avg_pool2d(const Variable& x);

// ---- Losses ----

/// The results of cross_entropy(), in f32 if the logits are f16 or bf16.
struct CrossEntropy {
  Variable loss;         // [1]: CrossEntropyOptions::scale times the sum over the batch
  Tensor losses;         // [N]: the loss of each sample
  Tensor correct;        // i32 [N]: 1 if the label has the largest logit, else 0
  Tensor correct_count;  // [1], of the type of the loss: the sum of `correct`, exact up to 2^24
};
/// Computes the softmax cross-entropy of logits [N, C] and labels i32 [N] in [0, C). By default, the loss is
/// the sum over the batch, not the mean; the scale for the mean is 1 / the global number of samples. Throws
/// UsageError for a label out of range on the CPU; a GPU does not check labels.
CrossEntropy cross_entropy(const Variable& logits, const Tensor& labels, CrossEntropyOptions options = {});
/// Returns only the loss of cross_entropy(), with label smoothing: a sum over the batch.
Variable cross_entropy_sum(const Variable& logits, const Tensor& labels, double smoothing = 0);

}  // namespace convoy
