// 3x3 convolutions in f32 on the CPU, with a quarter of the multiplications, or for stride 2 with 9
// sixteenths.
#pragma once

#include "kernels/conv2d.h"
#include "kernels/conv2d_geometry.h"

namespace convoy::winograd {

/// Whether the three directions below compute this convolution, and sooner than oneDNN's direct ones: 3x3
/// filters, stride 1, or stride 2 and a padding of 1, whole vectors of channels on both sides, and images
/// that tiles of 4x4 outputs do not overhang too far. A rule of the sizes, not a measurement: so the bits of
/// a training depend on nothing else.
bool pays(const ConvSizes& sizes);

/// As conv2d_forward and the rest (kernels/conv2d.h). Products are of values at points and put together with
/// factors of up to 3.4 an axis: rounding errors are some five times those of the direct sum.
void forward(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions options);
void backward_data(CpuStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options);
void backward_filter(CpuStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options);

}  // namespace convoy::winograd
