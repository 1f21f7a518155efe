// The time that work takes on a GPU, without the time that the host takes to enqueue it.
#pragma once

#include <functional>
#include <vector>

#include "convoy/kernels/runtime/cuda/stream.h"

namespace convoy::kernels::cuda {

/// Enqueues some work on a stream. Returns whether that was possible.
using Candidate = std::function<bool()>;

/// Returns the GPU's time for each candidate in milliseconds, or infinity for those that are not among the
/// fastest:
///  1. Each runs once without being timed, which loads code and memory. Candidates that fail are left out.
///  2. Each runs once more. Those that take more than 1.5 times as long as the fastest are left out.
///  3. The remaining ones run four more times, in turn. The result is the median of the five times.
/// A kernel that waits runs before 2 and before 3, so that all timed runs are in the queue when the first one
/// starts: otherwise a GPU that is faster than the host would wait for the host in each run. Blocks until the
/// GPU has finished. The stream must not be capturing.
std::vector<double> measure_ms(CudaStream& stream, const std::vector<Candidate>& candidates);

}  // namespace convoy::kernels::cuda
