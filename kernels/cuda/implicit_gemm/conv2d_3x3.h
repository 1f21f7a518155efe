// Convolution with 3x3 filters, stride 1 and padding 1 by the tensor cores, in f16 and bf16. Sums are f32.
// The work of each thread and the order of every sum depend only on the shapes.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/norm_conv2d.h"
#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::implicit_gemm {

/// Returns whether forward() computes this convolution: f16 or bf16, 3x3, stride 1, padding 1, one group,
/// images of at most kMaxWidth columns, a number of input channels that is a multiple of 16, and one of
/// output channels that is a multiple of 64.
bool supports_forward(DType dtype, const ConvSizes& sizes);
/// Returns whether backward_data() computes the gradient of the input of this convolution. The conditions are
/// those of supports_forward() with input and output channels swapped.
bool supports_backward_data(DType dtype, const ConvSizes& sizes);

/// The number of floating-point operations of a convolution from which on a stream times these kernels:
/// stream.local<MinimumFlops>().
struct MinimumFlops {
  explicit MinimumFlops(CudaStream& /*stream*/) {}
  /// A convolution with fewer takes little longer than a launch, by any algorithm.
  double value = 2.5e8;
};

inline constexpr int kMaxWidth = 107;  // two slabs of pixels and three of filters fit into 48 KiB

/// Number of pixels of a thread block. Larger blocks read the filters less often, but may be too few for all
/// multiprocessors of a GPU.
enum class BlockPixels : int { small = 128, large = 256 };
/// The instruction that multiplies. wgmma reaches a higher rate, but only Hopper has it.
enum class Instruction : int { mma_sync, wgmma };
/// Returns whether the GPU of a stream has wgmma: its compute capability is 9.0.
bool has_wgmma(const CudaStream& stream);

/// How a convolution is computed. The results of two instructions may differ in their last bit.
struct Variant {
  BlockPixels pixels;
  Instruction instruction;

  Variant(BlockPixels with_pixels = BlockPixels::small, Instruction with_instruction = Instruction::mma_sync)
      : pixels(with_pixels), instruction(with_instruction) {}
};
/// Returns the number for a result [N, H, W, C]: large if that gives at least 200 blocks, one and a half for
/// each of the 132 multiprocessors of an H100.
BlockPixels block_pixels(const Shape& out);
/// Returns the variant to be used without timing: block_pixels(), and wgmma where the GPU has it.
Variant default_variant(const CudaStream& stream, const Shape& out);

/// Enqueues y = x * filter (kernels/conv2d.h has the shapes). Requires supports_forward(), addresses that are
/// multiples of 16, and has_wgmma() for Instruction::wgmma; without, the kernel ends with an error.
void forward(CudaStream& stream, ConstView x, ConstView filter, View y, Variant variant);
/// Enqueues dx = the transposed convolution of dy with the filter, or adds it to dx in f32. Each element is
/// rounded once. Requires supports_backward_data(), and the same otherwise.
void backward_data(CudaStream& stream, ConstView dy, ConstView filter, GradView dx, Variant variant);

// The same with the batch norms of a residual block, which is convolution, batch norm, ReLU, convolution,
// batch norm. Arrays [C] and [2, C] are f32. Results with one set of arguments have the same bits in every
// run.

inline constexpr int kMaxNormChannels = 16384;  // of a result whose channels are summed

/// A batch norm and a ReLU between x and the convolution, whose input is u = max((x - mean) factor + offset,
/// 0), rounded to the type of x. NaN stays NaN. If `mean` is null, u = x.
struct InputNorm {
  ConstView mean, coefficients;  // [I], and [2, I]: factor and offset; at multiples of 16 bytes
};

/// Enqueues y = u * filter, and unless statistics.mean is null, the statistics of y. They are combined in f64
/// from the moments of the blocks, so that a large mean does not cancel. With no pixels, does what
/// batch_norm_statistics() does with no rows. Requires what forward() requires, and O of at most
/// kMaxNormChannels.
void forward(CudaStream& stream, ConstView x, const InputNorm& norm, ConstView filter, View y,
             const OutputStatistics& statistics, Variant variant);

/// The batch norm and the ReLU before the convolution, for the backward pass. x [N, H, W, I] is the input of
/// the batch norm, and mean, inverse_std and coefficients are those of OutputStatistics.
struct NormGradient {
  ConstView x, gamma, mean, inverse_std, coefficients;  // x, mean, coefficients: at multiples of 16 bytes
  GradView dgamma, dbeta;                               // [I]; each may be unwanted
  View factors;                                         // [3, I], for batch_norm_data_gradient()
};

/// Enqueues g, the gradient of (x - mean) factor + offset: the gradient of the convolution's input, rounded
/// to its type, or 0 where u is not positive. u is computed from x again, with the same rounding. Also
/// enqueues dgamma, dbeta and the factors with which batch_norm_data_gradient()
/// (kernels/cuda/normalization/data_gradient.h) computes the gradient of x from g. Requires what
/// backward_data() requires, and I of at most kMaxNormChannels.
void backward_data(CudaStream& stream, ConstView dy, ConstView filter, View g, const NormGradient& norm,
                   Variant variant);

}  // namespace convoy::kernels::implicit_gemm
