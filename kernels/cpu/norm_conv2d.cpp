// kernels/norm_conv2d.h on the CPU.
#include "convoy/kernels/norm_conv2d.h"

#include "convoy/kernels/shared/separate_norm_conv2d.h"

namespace convoy::kernels {

bool fuses_norm_conv2d(CpuStream&, DType, const Shape&, const Shape&, Conv2dOptions, bool) { return false; }

void norm_conv2d_forward(CpuStream& stream, ConstView x, const InputNorm& norm, ConstView filter, View y,
                         const OutputStatistics& statistics, Conv2dOptions options) {
  separate::forward(stream, x, norm, filter, y, statistics, options);
}

void norm_conv2d_backward_filter(CpuStream& stream, ConstView dy, ConstView x, const InputNorm& norm,
                                 GradView dfilter, Conv2dOptions options) {
  separate::backward_filter(stream, dy, x, norm, dfilter, options);
}

void norm_conv2d_backward_norm(CpuStream& stream, ConstView dy, ConstView filter, ConstView x,
                               const InputNorm& norm, GradView dx, GradView dgamma, GradView dbeta,
                               Conv2dOptions options) {
  separate::backward_norm(stream, dy, filter, x, norm, dx, dgamma, dbeta, options);
}

}  // namespace convoy::kernels
