// Differentiable operations on variables. Each op checks shapes, dtypes and devices, allocates its result,
// calls kernels, and records its backward. Ops throw UsageError if an argument does not fit. If an argument
// is on the meta device, the result is there too, and no kernel runs; the others may be on any device. Images
// are [N, H, W, C]. An op enqueues its kernels on the compute stream of its first argument's context and, on
// a GPU, does not wait for them. One thread at a time calls ops on one context; threads with contexts of
// their own may call ops at once.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "convoy/engine/autograd/variable.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/base/random.h"
#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/pool2d.h"
#include "convoy/kernels/softmax.h"

namespace convoy {

/// Collectives over the ranks (or devices) that each hold a shard of a batch or of the model's gradients.
/// Every rank must make the same calls in the same order. Work that is enqueued on the compute stream after a
/// call sees its results; on the CPU the call blocks until they are complete. Not thread-safe.
class ProcessGroup {
 public:
  virtual ~ProcessGroup() = default;
  /// Returns the number of ranks.
  virtual int size() const = 0;
  /// Gathers `local` [n] of every rank into `gathered` [size(), n], in rank order.
  virtual void all_gather(const Tensor& local, const Tensor& gathered) = 0;
  /// Replaces `values` by their elementwise sum over all ranks.
  virtual void all_reduce(const Tensor& values) = 0;
};

// ---- Elementwise operations ----

/// Returns max(x, 0). The gradient is 0 at 0. NaN is propagated, with the gradient of a positive number.
Variable relu(const Variable& x);
/// Returns x Phi(x), where Phi is the normal distribution function, without approximation (Hendrycks and
/// Gimpel, arXiv:1606.08415).
Variable gelu(const Variable& x);
/// Returns x sigmoid(x).
Variable silu(const Variable& x);
/// Returns x min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244).
Variable hardswish(const Variable& x);
/// Returns min(max(x + 3, 0), 6) / 6 (Howard et al., arXiv:1905.02244). The gradient is 0 at -3 and 3.
Variable hardsigmoid(const Variable& x);
/// Returns x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))) / 2, an approximation of gelu() (section 2 of its
/// source), with which GPT-2 was trained.
Variable gelu_tanh(const Variable& x);
/// Returns min(max(x, low), high), so `high` if low > high. NaN is propagated. The gradient is 1
/// between low and high, and 0 elsewhere and at NaN.
Variable clamp(const Variable& x, double low, double high);
/// Returns the same as clamp(), with the gradient 1 at NaN.
Variable hardtanh(const Variable& x, double low = -1, double high = 1);
/// Returns min(max(x, 0), 6) (Howard et al., arXiv:1704.04861). The gradient is 0 at 0 and 6.
inline Variable relu6(const Variable& x) { return hardtanh(x, 0, 6); }
/// Returns x, times `slope` where x is not positive (Maas et al., ICML 2013).
Variable leaky_relu(const Variable& x, double slope = 0.01);
/// Returns x where it is positive, and alpha (e^x - 1) elsewhere (Clevert et al., arXiv:1511.07289).
Variable elu(const Variable& x, double alpha = 1);
/// Returns log(1 + e^(beta x)) / beta, and x where beta x > threshold (Dugas et al., NIPS 2000). Throws
/// UsageError unless beta is positive.
Variable softplus(const Variable& x, double beta = 1, double threshold = 20);
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
/// Convolves x [N, H, W, I] with filter [O, kH, kW, I / groups] and adds bias, [O] or undefined; with
/// options.relu, applies max(., 0) to the result. Throws UsageError if an image has no pixels; N may be 0. Pads
/// by pad() if the padding is not of zeros, or if kSamePadding is an odd number of pixels.
Variable conv2d(const Variable& x, const Variable& filter, const Variable& bias, Conv2dOptions options = {});
/// Returns the size of one axis after a convolution or pooling window, (size + 2 padding - dilation (kernel -
/// 1) - 1) / stride + 1, rounded down. `ceil_mode` is as in Pool2dOptions. Throws UsageError if the window does
/// not fit.
std::int64_t window_output_size(std::int64_t size, std::int64_t kernel, int stride, int padding,
                                int dilation = 1, bool ceil_mode = false);

// ---- Normalization ----

/// Running statistics, [C] each. Training updates them in place.
struct BatchNormStatistics {
  Tensor running_mean;  // moving average of the batch means
  Tensor running_var;   // moving average of the unbiased batch variances
  /// f64 [1]: the number of this batch, from 1. If defined, training uses the momentum max(momentum, 1 /
  /// number): the average of the batches so far, later a moving average.
  Tensor batch = {};
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
/// Throws UsageError if the padding exceeds half of the kernel, or if an image has no pixels.
Variable max_pool2d(const Variable& x, Pool2dOptions options);
/// Returns the mean of each window, in the shape of max_pool2d(). Throws UsageError like max_pool2d().
Variable avg_pool2d(const Variable& x, Pool2dOptions options);
/// Returns the maximum of each window, [N, oH, oW, C], for a `size` of oH and oW: window i of oH covers the rows
/// from floor(i H / oH) to ceil((i + 1) H / oH) - 1, and columns alike. Throws UsageError unless the size is
/// positive, and if an image has no pixels.
Variable adaptive_max_pool2d(const Variable& x, Size2d size);
/// Returns the mean of each window of adaptive_max_pool2d(), and throws like it.
Variable adaptive_avg_pool2d(const Variable& x, Size2d size);
/// Averages [N, H, W, C] over all pixels to [N, C]. Throws UsageError if there are no pixels.
Variable global_avg_pool2d(const Variable& x);

// ---- Losses ----

/// The result of a loss.
enum class Reduction : std::uint8_t {
  mean,  // of the losses of all elements, [1]; UsageError if there are none
  sum,   // of the losses of all elements, [1]
  none,  // the loss of each element, in the shape of x
};

/// Options of cross_entropy(). C is the number of classes.
struct CrossEntropyOptions {
  double smoothing = 0;  // label smoothing s, in [0, 1)
  double scale = 1;      // the factor of a sum; with another reduction, 1
  /// Losses and gradients are sums over the batch by default. The mean is over CrossEntropy::weight for
  /// labels, and over the number of rows for probabilities.
  Reduction reduction = Reduction::sum;
  /// Weights [C] of the classes, with which log p_c is multiplied; undefined: all are 1. f32 if the logits
  /// are f16 or bf16, else of the type of the logits.
  Tensor class_weights = {};
  std::int32_t ignore_index = -100;  // the label of rows without loss and gradient
};
/// The results of cross_entropy(), in f32 if the logits are f16 or bf16.
struct CrossEntropy {
  Variable loss;         // as CrossEntropyOptions::reduction says: [1], or the losses of all rows
  Tensor losses;         // [...]: the loss of each row
  Tensor correct;        // i32 [...]: 1 if the class of the largest target has the largest logit, else 0
  Tensor correct_count;  // [1], of the type of the loss: the sum of `correct`, exact up to 2^24
  /// [1]: the sum of the weights of the labels of all rows that are not ignored. Undefined for probabilities,
  /// and for a sum without class weights.
  Tensor weight;
};
/// Computes the cross-entropy of the softmax of logits [..., C]: the sum over the classes of -w_c ((1 - s)
/// t_c + s / C) log p_c, as torch.nn.functional.cross_entropy. `target` has labels i32 [...] in [0, C), for
/// which t_c is 1 at the label and 0 elsewhere, or the probabilities t [..., C], f32 if the logits are f16 or
/// bf16, else of the type of the logits, without a gradient. In data parallel training, the scale for a mean
/// is 1 / the global number of samples, or 1 / the sum of CrossEntropy::weight over the ranks. Throws
/// UsageError for a label that is out of range and not ignored on the CPU; a GPU does not check labels.
CrossEntropy cross_entropy(const Variable& logits, const Tensor& target,
                           const CrossEntropyOptions& options = {});
/// Returns the loss of cross_entropy() without its softmax: of log-probabilities log_p [..., C], such as
/// those of log_softmax().
Variable nll_loss(const Variable& log_p, const Tensor& target, const CrossEntropyOptions& options = {});
/// Returns only the loss of cross_entropy(), with label smoothing: a sum over the batch.
Variable cross_entropy_sum(const Variable& logits, const Tensor& labels, double smoothing = 0);

// ---- Arithmetic ----
//
// Binary ops broadcast their operands by NumPy's rules: axes are aligned at the last one, and an axis that is
// missing or of size 1 is repeated. The gradient of a repeated operand is the sum over the repetitions.
// Operands have one floating-point type and one device. Shapes that cannot be broadcast throw UsageError.

/// Returns x + y.
Variable add(const Variable& x, const Variable& y);
/// Returns x - y.
Variable sub(const Variable& x, const Variable& y);
/// Returns x y.
Variable mul(const Variable& x, const Variable& y);
/// Returns x / y.
Variable div(const Variable& x, const Variable& y);
/// Returns the larger of x and y. Equal elements get half of the gradient each; NaN is propagated, and both
/// get it.
Variable maximum(const Variable& x, const Variable& y);
/// Returns the smaller of x and y. Equal elements get half of the gradient each. NaN is propagated.
Variable minimum(const Variable& x, const Variable& y);
/// Returns x where `condition`, u8, is not 0, and y elsewhere. All three are broadcast.
Variable where(const Tensor& condition, const Variable& x, const Variable& y);

/// Returns a x.
Variable scale(const Variable& x, double a);
/// Returns x + a.
Variable add_scalar(const Variable& x, double a);
/// Returns x^p. The gradient p x^(p - 1) is infinite at 0 for p < 1. x^0 has the gradient 0 everywhere.
Variable pow(const Variable& x, double p);
/// Returns e^x.
Variable exp(const Variable& x);
/// Returns the natural logarithm.
Variable log(const Variable& x);
/// Returns the square root. Its gradient is infinite at 0.
Variable sqrt(const Variable& x);
/// Returns |x|, whose gradient is 0 at 0 and at NaN.
Variable abs(const Variable& x);

/// Returns add(x, y).
inline Variable operator+(const Variable& x, const Variable& y) { return add(x, y); }
/// Returns sub(x, y).
inline Variable operator-(const Variable& x, const Variable& y) { return sub(x, y); }
/// Returns mul(x, y).
inline Variable operator*(const Variable& x, const Variable& y) { return mul(x, y); }
/// Returns div(x, y).
inline Variable operator/(const Variable& x, const Variable& y) { return div(x, y); }
/// Returns -x.
inline Variable operator-(const Variable& x) { return scale(x, -1); }
/// Returns x + a.
inline Variable operator+(const Variable& x, double a) { return add_scalar(x, a); }
/// Returns a + x.
inline Variable operator+(double a, const Variable& x) { return add_scalar(x, a); }
/// Returns x - a.
inline Variable operator-(const Variable& x, double a) { return add_scalar(x, -a); }
/// Returns a - x.
inline Variable operator-(double a, const Variable& x) { return add_scalar(scale(x, -1), a); }
/// Returns a x.
inline Variable operator*(const Variable& x, double a) { return scale(x, a); }
/// Returns a x.
inline Variable operator*(double a, const Variable& x) { return scale(x, a); }
/// Returns x / a, computed as x (1 / a).
inline Variable operator/(const Variable& x, double a) { return scale(x, 1 / a); }
/// Returns a / x.
inline Variable operator/(double a, const Variable& x) { return scale(pow(x, -1), a); }

// ---- Rearrangement ----
//
// These ops compute nothing, and their gradients rearrange back. Tensors are contiguous, so all of them but
// reshape, squeeze and unsqueeze copy. An axis counts from the last one if it is negative. reshape, squeeze
// and unsqueeze take every type, the others floating-point types.

/// Returns the elements of x, in the same order, as a variable of another shape with as many elements.
Variable reshape(const Variable& x, const Shape& shape);
/// Removes an axis of size 1.
Variable squeeze(const Variable& x, int axis);
/// Adds an axis of size 1 in front of `axis`, which is -1 for a new last axis.
Variable unsqueeze(const Variable& x, int axis);
/// Flattens [N, H, W, C] to [N, C H W] in PyTorch's order, so that a Linear after it has PyTorch's weights.
/// Flattens any other [N, …] to [N, rest].
Variable flatten(const Variable& x);

/// Reorders the axes: axis i of the result is axis axes[i] of x. `axes` has each axis of x once.
Variable permute(const Variable& x, std::initializer_list<int> axes);
/// Does the same for a span of axes.
Variable permute(const Variable& x, std::span<const int> axes);
/// Swaps two axes.
Variable transpose(const Variable& x, int axis_a, int axis_b);

/// Repeats x to a shape by NumPy's rules, as the ops of arithmetic do.
Variable broadcast_to(const Variable& x, const Shape& shape);
/// Sums x to a shape that could be broadcast to that of x: the gradient of broadcast_to().
Variable sum_to(const Variable& x, const Shape& shape);

/// Returns elements begin, begin + step, … below `end` of one axis. Negative positions count from the end of
/// the axis, as in Python. Throws UsageError unless 0 <= begin <= end <= size, after that, and step >= 1.
Variable slice(const Variable& x, int axis, std::int64_t begin, std::int64_t end, std::int64_t step = 1);
/// Splits x along an axis into `parts` variables of equal size. Throws UsageError if `parts` does not divide
/// the size.
std::vector<Variable> chunk(const Variable& x, int parts, int axis);
/// Joins variables of one element type, and of one shape but for `axis`, along that axis.
Variable concat(const std::vector<Variable>& inputs, int axis);
/// Joins variables of one shape along a new axis.
Variable stack(const std::vector<Variable>& inputs, int axis);

/// The number of elements that pad() adds in front of and behind one axis.
struct Padding {
  std::int64_t before = 0;  // at least 0
  std::int64_t after = 0;   // at least 0
};
/// Adds elements of `value` around x. `padding` has one entry per axis, in the order of the axes.
Variable pad(const Variable& x, const std::vector<Padding>& padding, double value = 0);
/// Adds elements of x around it, or zeros, as `mode` says. Throws UsageError if an axis is too short:
/// PaddingMode::reflect adds less than its size on either side, PaddingMode::circular at most its size, and
/// PaddingMode::replicate nothing around an axis of size 0.
Variable pad(const Variable& x, const std::vector<Padding>& padding, PaddingMode mode);

// ---- Reductions and softmax ----
//
// An axis counts from the last one if it is negative; an axis that does not exist or is named twice throws
// UsageError, and so does an integer type.

/// Returns the sum of all elements, [1].
Variable sum(const Variable& x);
/// Returns the mean of all elements, [1]. Throws UsageError if there are none.
Variable mean(const Variable& x);

/// Returns the sum over `axes`, which are removed, or kept with size 1 if `keep_axes`.
Variable sum(const Variable& x, const std::vector<int>& axes, bool keep_axes = false);
/// Returns the mean over `axes`. Throws UsageError if it has no terms.
Variable mean(const Variable& x, const std::vector<int>& axes, bool keep_axes = false);
/// Returns the mean squared distance from the mean over `axes`. With `unbiased`, divides by one less than the
/// number of terms. Throws UsageError if that is 0.
Variable variance(const Variable& x, const std::vector<int>& axes, bool keep_axes = false,
                  bool unbiased = true);

/// Returns the maximum over one axis. The gradient goes to the first maximum. NaN is larger than any number.
/// Throws UsageError if the axis has size 0.
Variable max(const Variable& x, int axis, bool keep_axis = false);
/// Returns the minimum over one axis, as max() does.
Variable min(const Variable& x, int axis, bool keep_axis = false);
/// Returns the position of the first maximum along one axis, i32, which has no gradient.
Tensor argmax(const Variable& x, int axis, bool keep_axis = false);

/// Returns exp(x) divided by its sum along an axis.
Variable softmax(const Variable& x, int axis = -1);
/// Returns the logarithm of softmax(), without its loss of precision where that is close to 0.
Variable log_softmax(const Variable& x, int axis = -1);

// ---- Indexing ----
//
// Indices are i32 tensors without a gradient, and count from 0. An index out of range throws UsageError on
// the CPU. A GPU does not check, because that would stall every step: such an index gives NaN (0 in an
// integer type) there, and no gradient. Gradients have the same bits in every run, also if indices occur
// repeatedly. A negative axis counts from the last one.

/// Returns the slices of x at indices [K] of an axis, which has size K in the result: for axis 0, rows of x.
/// Throws UsageError for indices of another rank.
Variable index_select(const Variable& x, int axis, const Tensor& indices);
/// Returns the rows of weight [V, D] at indices […], which is […, D]. Throws UsageError for a weight of
/// another rank.
Variable embedding(const Variable& weight, const Tensor& indices);

// ---- Losses of elements: x and the target have one shape and floating-point type ----

/// Returns (x - target)^2.
Variable mse_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean);
/// Returns |x - target|, whose gradient is 0 where both are equal.
Variable l1_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean);
/// Returns (x - target)^2 / 2 where |x - target| <= delta, and delta (|x - target| - delta / 2) elsewhere
/// (Huber, Ann. Math. Statist. 35(1), 1964). Throws UsageError unless delta is positive.
Variable huber_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean,
                    double delta = 1);
/// Returns huber_loss() with delta = beta, divided by beta (Girshick, arXiv:1504.08083), and l1_loss() for
/// beta = 0.
Variable smooth_l1_loss(const Variable& x, const Variable& target, Reduction reduction = Reduction::mean,
                        double beta = 1);
/// Returns -t log s(x) - (1 - t) log(1 - s(x)) for logits x and targets t, probabilities, with s the logistic
/// sigmoid. Computed so that large logits neither overflow nor lose precision.
Variable binary_cross_entropy_with_logits(const Variable& logits, const Variable& target,
                                          Reduction reduction = Reduction::mean);
/// Returns q (log q - log_p), and 0 where q is 0: the terms of the Kullback-Leibler divergence of the
/// distribution q from one with the log-probabilities log_p. As in PyTorch, the mean is over all elements;
/// for the mean over N samples, divide the sum by N. The gradient of q is 0 where q is 0.
Variable kl_divergence(const Variable& log_p, const Variable& q, Reduction reduction = Reduction::mean);

// ---- Attention ----

/// Options of scaled_dot_product_attention().
struct AttentionOptions {
  bool causal = false;               // if true, query i uses only the keys 0 to i
  std::optional<double> scale = {};  // default: 1 / sqrt(D)
  /// u8, broadcast to the scores [..., T, S]: a query does not use the keys where it is 0. Not with `causal`.
  /// A query without keys has the result 0. Undefined: all keys are used.
  Tensor mask = {};
  Variable bias = {};  // broadcast to the scores and added to them, of their type; undefined: none
  /// Applied to the probabilities [..., T, S], for example dropout() or a Dropout layer; empty: nothing.
  std::function<Variable(const Variable&)> dropout = {};
};

/// Returns softmax(scale q k^T) v, [..., T, V], for queries q [..., T, D], keys k [..., S, D] and values v
/// [..., S, V], with the softmax over the keys (Vaswani et al., arXiv:1706.03762). The leading sizes, such as
/// those of samples and heads, are equal. The arguments have one floating-point type. D, S and V must be
/// positive. Throws UsageError for other arguments.
///
/// With a mask, a bias or dropout, and on a GPU, this is a composition of other ops, which stores all scores
/// and probabilities for backward. Otherwise, memory beyond arguments and result is proportional to T: scores
/// are computed in blocks, in the manner of FlashAttention (Dao et al., arXiv:2205.14135), and again in the
/// backward pass.
Variable scaled_dot_product_attention(const Variable& q, const Variable& k, const Variable& v,
                                      const AttentionOptions& options = {});

// ---- Normalization within samples: training and inference are the same ----

/// Returns weight (x - mean) / sqrt(var + epsilon) + bias, with mean and biased variance over the last axes
/// of x (Ba et al., arXiv:1607.06450). `normalized` has the sizes of these axes, and is the shape of weight
/// and bias, either of which may be undefined. They are f32 if x is f16 or bf16, else of the type of x.
/// Throws UsageError if `normalized` is empty or not the end of the shape of x.
Variable layer_norm(const Variable& x, const Shape& normalized, const Variable& weight = {},
                    const Variable& bias = {}, double epsilon = 1e-5);

/// Returns weight (x - mean) / sqrt(var + epsilon) + bias for x [N, …, C] (Wu and He, arXiv:1803.08494).
/// Divides the channels into `groups` groups of adjacent ones; mean and biased variance are over all elements
/// of a group in one sample. weight and bias are [C], or undefined. They are f32 if x is f16 or bf16, else of
/// the type of x. Throws UsageError unless `groups` is positive and divides C.
Variable group_norm(const Variable& x, int groups, const Variable& weight = {}, const Variable& bias = {},
                    double epsilon = 1e-5);

// ---- Transposed convolution ----

/// Options of a transposed convolution. stride and padding are those of the convolution that it transposes.
struct ConvTranspose2dOptions {
  int stride = 1;   // on both axes
  int padding = 0;  // removes this many pixels from all four sides of the result
  /// Adds rows at the bottom and columns at the right of the result, less than `stride`: selects one of the
  /// `stride` sizes from which the convolution makes the size of x.
  int output_padding = 0;
  int groups = 1;  // of channels; must divide the number of channels of x
};

/// Computes the transposed convolution of x [N, H, W, I] with filter [I, kH, kW, O / groups], and adds
/// bias, [O] or undefined. It is the gradient, for its input, of a convolution of [N, oH, oW, O] to
/// [N, H, W, I] with the same filter, which is OHWI for that convolution. The result is [N, oH, oW, O] with
/// oH = (H - 1) stride - 2 padding + kH + output_padding, and oW alike (Dumoulin and Visin, "A guide to
/// convolution arithmetic for deep learning", arXiv:1603.07285, section 4). In f16 and bf16 the sum is
/// rounded before the bias is added. Throws UsageError if oH or oW is not positive, or if an image has no
/// pixels.
Variable conv2d_transpose(const Variable& x, const Variable& filter, const Variable& bias,
                          ConvTranspose2dOptions options = {});

}  // namespace convoy
