// Normalization within samples: layer norm (Ba et al., arXiv:1607.06450) and group norm (Wu and He,
// arXiv:1803.08494):
//   y = weight (x - mean) / sqrt(var + epsilon) + bias
// x, y and their gradients are [N, P, C]: N samples of P pixels with C channels, channels last. A group is
// the P pixels of C / G adjacent channels of one sample; mean and the biased variance are those of a group.
// Layer norm has P = 1 and G = 1. means is [N, G, 2] (see GroupMean) and inverse_std [N, G]; weight and bias
// are [C]. These have the type in which kernels compute: f32 if x is bf16 or (on a GPU) f16, otherwise the
// type of x. The result is rounded to the type of x once.
#pragma once

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::kernels {

/// The sizes of x [N, P, C] with statistics [N, G].
struct GroupSizes {
  std::int64_t samples, pixels, channels, groups;

  GroupSizes(const Shape& x, const Shape& statistics)
      : samples(x[0]), pixels(x[1]), channels(x[2]), groups(statistics[1]) {}
  std::int64_t group_channels() const { return channels / groups; }
};

/// The mean of a group as the sum of two numbers. One f32 number is wrong by up to 5e-4 at 10,000, and the
/// results would be wrong by as much if the standard deviation is 1.
template <class C>
struct GroupMean {
  C rounded, rest;

  /// Returns x - mean.
  CONVOY_HOST_DEVICE C distance(C x) const { return (x - rounded) - rest; }
};

// Normalizes x. Saves means and inverse_std = 1 / sqrt(var + epsilon) for the backward pass. A null weight is
// 1, a null bias 0. G must be positive and divide C.
void group_norm_forward(CpuStream&, ConstView x, ConstView weight, ConstView bias, double epsilon, View y,
                        View means, View inverse_std);
void group_norm_forward(CudaStream&, ConstView x, ConstView weight, ConstView bias, double epsilon, View y,
                        View means, View inverse_std);

// Computes the gradients of group_norm_forward, each of which may be unwanted. With xh = (x - mean)
// inverse_std and g = weight dy:
//   dbias = sum of dy and dweight = sum of dy xh over all samples and pixels,
//   dx = inverse_std (g - mean of g - xh (mean of g xh)), with the means over the group.
void group_norm_backward(CpuStream&, ConstView dy, ConstView x, ConstView weight, ConstView means,
                         ConstView inverse_std, GradView dx, GradView dweight, GradView dbias);
void group_norm_backward(CudaStream&, ConstView dy, ConstView x, ConstView weight, ConstView means,
                         ConstView inverse_std, GradView dx, GradView dweight, GradView dbias);

}  // namespace convoy::kernels
