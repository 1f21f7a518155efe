// How the runtime's functions reach the driver.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "tests/cuda_emulator/driver.h"

namespace convoy::emulator {

/// Under the driver's lock; remembers an error for cudaGetLastError.
cudaError_t call(const std::function<cudaError_t(Driver&)>& f);
/// For what needs a GPU, which is the calling thread's current one, and makes a context there. Without a GPU,
/// or after a fault, the error that the real runtime gives.
cudaError_t on_gpu(const std::function<cudaError_t(Driver&, int gpu)>& f);
/// The same for what needs a stream, which must not be of a capture that was invalidated.
cudaError_t on_stream(cudaStream_t stream, const std::function<cudaError_t(Driver&, EmulatedStream&)>& f);
cudaError_t on_any_stream(cudaStream_t stream, const std::function<cudaError_t(Driver&, EmulatedStream&)>& f);
/// For a call that no capture can hold: invalidates it.
cudaError_t unsupported(Capture& capture);

}  // namespace convoy::emulator
