// Copies of arrays with more or fewer channels. The tensor cores multiply 16 channels at a time, and images
// have fewer.
#pragma once

#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels::channel_padding {

/// Enqueues y[…, c] = x[…, c] if c is a channel of x, and 0 otherwise. The other axes are equal. The type is
/// f16 or bf16. y has at least as many channels as x, and a multiple of 8. Its address is a multiple of 16.
void pad_channels(CudaStream& stream, ConstView x, View y);

/// Enqueues y[…, c] = x[…, c] for the channels of y, of which x has at least as many.
void cut_channels(CudaStream& stream, ConstView x, View y);

}  // namespace convoy::kernels::channel_padding
