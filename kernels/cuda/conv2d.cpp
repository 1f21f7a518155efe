// kernels/conv2d.h on the GPU: which convolution computes.
#include "kernels/conv2d.h"

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

}  // namespace convoy
