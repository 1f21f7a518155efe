// Convolutions of images with few channels on the CPU, such as those of LeNet and the first layers of
// networks. The windows of a row of outputs overlap in memory, so a matrix product reads them where they are.
// README.md in this directory explains it.
#pragma once

#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::few_channels {

/// Returns whether the three functions below support this convolution and are faster than oneDNN: for wide
/// windows of very few channels. The answer depends on the sizes only and never on a measurement, so results
/// are reproducible.
bool pays(const ConvSizes& sizes);

/// Compute the same as conv2d_forward() and the two gradients (kernels/conv2d.h) in f32, for stride 1, one
/// group, and a padding smaller than the window. The order of every sum depends on the sizes only, not on the
/// number of threads or the width of vectors.
void forward(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions options);
void backward_data(CpuStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options);
void backward_filter(CpuStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options);

}  // namespace convoy::kernels::few_channels
