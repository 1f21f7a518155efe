// kernels/conv2d.h on the GPU in builds without cuDNN: uses the reference kernels, which are slow.
#include "convoy/kernels/conv2d.h"
#include "convoy/kernels/runtime/library_versions.h"

namespace convoy::kernels {

void conv2d_forward(CudaStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options) {
  if (!conv2d_forward_direct(stream, x, filter, bias, y, options))
    conv2d_forward_reference(stream, x, filter, bias, y, options);
}

void conv2d_backward_data(CudaStream& stream, ConstView dy, ConstView filter, GradView dx,
                          Conv2dOptions options) {
  conv2d_backward_data_reference(stream, dy, filter, dx, options);
}

void conv2d_backward_filter(CudaStream& stream, ConstView dy, ConstView x, GradView dfilter,
                            Conv2dOptions options) {
  conv2d_backward_filter_reference(stream, dy, x, dfilter, options);
}

}  // namespace convoy::kernels

namespace convoy {

std::string cudnn_version_text() { return ""; }

}  // namespace convoy
