// The time that work takes on a GPU, without the time that the host takes to enqueue it.
#pragma once

#include <functional>

#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels::cuda {

/// Returns the GPU's time for the work that `enqueue` enqueues on the stream, in milliseconds. It is the
/// median of five runs after a warm-up run, which loads code and memory. A kernel that waits runs before the
/// five, so that all are in the queue when the first one starts: otherwise a GPU that is faster than the host
/// would wait for the host in each run. Blocks until the GPU has finished. The stream must not be capturing.
double measure_ms(CudaStream& stream, const std::function<void()>& enqueue);

}  // namespace convoy::kernels::cuda
