// Winograd's algorithm for 3x3 convolutions on the CPU. Compared with the definition it needs 1/4 of the
// multiplications for stride 1, and 9/16 for stride 2. README.md in this directory explains the algorithm.
#pragma once

#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::winograd {

/// Returns whether the three functions below support this convolution and are faster than oneDNN's direct
/// algorithm. They support 3x3 filters without groups, with stride 1, or with stride 2 and a padding of 1.
/// Input and output channels must fill whole vectors, and tiles of 4x4 outputs must not overhang the images
/// too far. The answer depends on the sizes only and never on a measurement, so results are reproducible.
bool pays(const ConvSizes& sizes);

/// Compute the same as conv2d_forward() and the two gradients (kernels/conv2d.h), for f32 or bf16 images, in
/// f32. Call them only if pays() is true. The transforms have coefficients of up to 3.4 per axis, so rounding
/// errors are about five times those of the direct sum.
void forward(CpuStream&, ConstView x, ConstView filter, ConstView bias, View y, Conv2dOptions options);
void backward_data(CpuStream&, ConstView dy, ConstView filter, GradView dx, Conv2dOptions options);
void backward_filter(CpuStream&, ConstView dy, ConstView x, GradView dfilter, Conv2dOptions options);

}  // namespace convoy::kernels::winograd
