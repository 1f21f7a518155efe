// Convolutions of f32 and bf16 images by oneDNN. Images are NHWC, filters OHWI.
#pragma once

#include <string>

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/shared/conv2d_geometry.h"

namespace convoy::kernels::onednn {

/// Compute the same as conv2d_forward() without ReLU, conv2d_backward_data() and conv2d_backward_filter()
/// (kernels/conv2d.h). All arrays have one type and none is empty. bias.data may be null. Return "", or why
/// oneDNN has no primitive of this convolution: then nothing has been written. Throw DeviceError if a primitive
/// fails.
///
/// The images are split into blocks, whose number depends on the sizes only. Each block is one call of oneDNN
/// with one thread, and the threads of the stream share the blocks. The filter gradients of the blocks are
/// added in order, in f32. Results are therefore the same for any number of threads. Batches of fewer than
/// four images are one call with the library's own threads.
[[nodiscard]] std::string convolution_forward(CpuStream&, const ConvSizes&, ConstView x, ConstView filter,
                                              ConstView bias, View y);
[[nodiscard]] std::string convolution_backward_data(CpuStream&, const ConvSizes&, ConstView dy,
                                                    ConstView filter, View dx);
[[nodiscard]] std::string convolution_backward_filter(CpuStream&, const ConvSizes&, ConstView dy, ConstView x,
                                                      View dfilter);

}  // namespace convoy::kernels::onednn
