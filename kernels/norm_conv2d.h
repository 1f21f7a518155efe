// Convolution with the batch norms before and after it, as in
//   convolution, batch norm, ReLU, convolution, batch norm
// of a residual block. The functions take the input x of the first batch norm, and apply batch norm and ReLU
// to the values that they read:
//   u = max((x - mean) factor + offset, 0), rounded to the type of x.
// NaN stays NaN. u is not kept in memory between the calls. Shapes and types are those of kernels/conv2d.h
// and kernels/batchnorm.h.
//
// The implementations that exist compute u in temporary memory and call the functions of these two headers,
// so results have the same bits as separate calls.
#pragma once

#include "convoy/kernels/batchnorm.h"
#include "convoy/kernels/conv2d.h"

namespace convoy::kernels {

/// The batch norm and the ReLU before a convolution: what batch_norm_statistics() computed from x. All
/// members but the coefficients [2, I] are [I]. The forward pass and the gradient of the filter need mean and
/// coefficients only. If mean.data is null, there is no batch norm and no ReLU: u = x.
struct InputNorm {
  ConstView gamma, mean, inverse_std, coefficients;
};

/// The batch norm after a convolution: the arguments of batch_norm_statistics() for its result y.
struct OutputStatistics {
  ConstView gamma, beta;                                            // [O]
  View mean, inverse_std, coefficients, running_mean, running_var;  // [O]; coefficients: [2, O]
  BatchNormOptions options;                                         // options.activation is not read
};

// Returns whether the following functions are faster, for this convolution, than batch_norm_forward(),
// conv2d_forward() and their gradients; false if that is not known. `has_norm` says whether InputNorm is
// given; without it, only the statistics can be fused. The CPU returns false. A GPU returns whether
// stream.algorithm_cache() has "fused" for the problem, such as
// "norm conv2d bf16 n128 32x32x64 k64 3x3 s1 p1", or without InputNorm
// "conv2d statistics bf16 n128 32x32x64 k64 3x3 s1 p1". Deterministic streams
// return false. CudaOptions::convolutions can make this choice for all problems.
bool fuses_norm_conv2d(CpuStream&, DType dtype, const Shape& x, const Shape& filter, Conv2dOptions options,
                       bool has_norm);
bool fuses_norm_conv2d(CudaStream&, DType dtype, const Shape& x, const Shape& filter, Conv2dOptions options,
                       bool has_norm);

// Computes y = u * filter, and the statistics of y, rounded as it is stored.
void norm_conv2d_forward(CpuStream&, ConstView x, const InputNorm& norm, ConstView filter, View y,
                         const OutputStatistics& statistics, Conv2dOptions options);
void norm_conv2d_forward(CudaStream&, ConstView x, const InputNorm& norm, ConstView filter, View y,
                         const OutputStatistics& statistics, Conv2dOptions options);

// Computes dfilter, the correlation of u with dy.
void norm_conv2d_backward_filter(CpuStream&, ConstView dy, ConstView x, const InputNorm& norm,
                                 GradView dfilter, Conv2dOptions options);
void norm_conv2d_backward_filter(CudaStream&, ConstView dy, ConstView x, const InputNorm& norm,
                                 GradView dfilter, Conv2dOptions options);

// Computes the gradients of the batch norm before the convolution. They are those of batch_norm_backward()
// with a ReLU, for the gradient of u, which is rounded to the type of x. Each of the three may be unwanted.
// Requires a batch norm.
void norm_conv2d_backward_norm(CpuStream&, ConstView dy, ConstView filter, ConstView x, const InputNorm& norm,
                               GradView dx, GradView dgamma, GradView dbeta, Conv2dOptions options);
void norm_conv2d_backward_norm(CudaStream&, ConstView dy, ConstView filter, ConstView x,
                               const InputNorm& norm, GradView dx, GradView dgamma, GradView dbeta,
                               Conv2dOptions options);

}  // namespace convoy::kernels
