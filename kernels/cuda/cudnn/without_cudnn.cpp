// kernels/conv2d.h on the GPU in builds without cuDNN: uses the reference kernels, which are slow.
#include "kernels/conv2d.h"
#include "kernels/runtime/library_versions.h"

namespace convoy {

void conv2d_forward(CudaStream& stream, ConstView x, ConstView filter, ConstView bias, View y,
                    Conv2dOptions options) {
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

std::string cudnn_version_text() { return ""; }

}  // namespace convoy
