// Operations on variables. Each checks shapes, dtypes and devices (UsageError, naming what was seen),
// allocates its result, calls kernels, and records its backward. Images are [N, H, W, C].
#pragma once

#include "engine/autograd/variable.h"
#include "engine/tensor/part_exchange.h"
#include "kernels/batchnorm.h"
#include "kernels/conv2d.h"
#include "kernels/pool2d.h"
#include "kernels/random.h"

namespace convoy {

// elementwise: equal shapes
Variable add(const Variable& x, const Variable& y);
Variable mul(const Variable& x, const Variable& y);
Variable scale(const Variable& x, double a);
inline Variable operator+(const Variable& x, const Variable& y) { return add(x, y); }
inline Variable operator*(const Variable& x, const Variable& y) { return mul(x, y); }
inline Variable operator*(const Variable& x, double a) { return scale(x, a); }
inline Variable operator*(double a, const Variable& x) { return scale(x, a); }
inline Variable operator/(const Variable& x, double a) { return scale(x, 1 / a); }
Variable relu(const Variable& x);
Variable gelu(const Variable& x);
Variable silu(const Variable& x);
Variable tanh(const Variable& x);
Variable sigmoid(const Variable& x);
/// x [N, …], sample_ids i32 [N]; p in [0, 1). See kernels/elementwise.h. epoch_cell: i32 [1], which becomes
/// random.cell; it must hold the same number still when backward runs.
Variable dropout(const Variable& x, const Tensor& sample_ids, double p, Random random,
                 const Tensor& epoch_cell = {});
/// To another floating-point type; the gradient is cast back.
Variable cast(const Variable& x, DType dtype);

// shape
Variable reshape(const Variable& x, const Shape& shape);
/// [N, H, W, C] -> [N, C H W] in PyTorch's order, so that a Linear after it has PyTorch's weights; [N, …] ->
/// [N, rest].
Variable flatten(const Variable& x);

// reductions, to one element
Variable sum(const Variable& x);
Variable mean(const Variable& x);

// products
/// a [M, K] times b [K, N].
Variable matmul(const Variable& a, const Variable& b);
/// x [N, in], weight [out, in], bias [out] or undefined -> x weight^T + bias, [N, out]; max(., 0) of it
/// with_relu.
Variable linear(const Variable& x, const Variable& weight, const Variable& bias, bool with_relu = false);
/// x [N, H, W, I], filter [O, kH, kW, I], bias [O] or undefined; max(., 0) of it with options.relu.
Variable conv2d(const Variable& x, const Variable& filter, const Variable& bias, Conv2dOptions options = {});
/// Size of one axis after a convolution or pooling window; UsageError where the window does not fit.
std::int64_t window_output_size(std::int64_t size, std::int64_t kernel, int stride, int padding);

// normalization; running statistics [C] are updated in place in training
struct BatchNormStatistics {
  Tensor running_mean;
  Tensor running_var;
};
/// x and residual [N, …, C], the latter undefined where nothing is added; all else [C], of the type that x is
/// computed in: f32 where x is f16 or bf16, else that of x. See kernels/batchnorm.h.
Variable batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                    const BatchNormStatistics& running, bool training, BatchNormOptions options = {},
                    const Variable& residual = {});
/// batch_norm in training, of a batch in parts: normalizes this one's x, which may have no rows, by the
/// statistics of all. Every part records its backward where one does, and runs it. The gradients of gamma and
/// beta are this part's contributions.
Variable sync_batch_norm(const Variable& x, const Variable& gamma, const Variable& beta,
                         const BatchNormStatistics& running, const std::shared_ptr<PartExchange>& exchange,
                         BatchNormOptions options = {}, const Variable& residual = {});

// pooling
Variable max_pool2d(const Variable& x, Pool2dOptions options);
Variable avg_pool2d(const Variable& x, Pool2dOptions options);
/// [N, H, W, C] -> [N, C].
Variable global_avg_pool2d(const Variable& x);

// loss
struct CrossEntropy {
  Variable loss;   // [1]: the *sum* over the batch; divide by the global number of samples
  Tensor losses;   // [N], of each sample
  Tensor correct;  // i32 [N]: 1 where the label has the largest logit
};
/// logits [N, C], labels i32 [N] in [0, C); smoothing in [0, 1).
CrossEntropy cross_entropy(const Variable& logits, const Tensor& labels, double smoothing = 0);
/// Only the sum.
Variable cross_entropy_sum(const Variable& logits, const Tensor& labels, double smoothing = 0);

}  // namespace convoy
