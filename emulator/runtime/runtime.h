// Helpers through which the functions of the CUDA runtime call the driver.
#pragma once

#include <cuda_runtime_api.h>

#include <functional>

#include "emulator/runtime/driver.h"

namespace convoy::emulator {

/// The first error of a CUDA call that the program has not looked at, by cudaGetLastError or
/// cudaGetErrorString.
struct UncheckedError {
  cudaError_t error = cudaSuccess;
  Callers callers{};
};
UncheckedError& unchecked_error();
/// Calls `f` under the driver's lock. Stores an error for cudaGetLastError.
cudaError_t call(const std::function<cudaError_t(Driver&)>& f);
/// Returns the last error of the calling thread, which the program has now looked at.
cudaError_t last_error();
/// Calls `f` with the calling thread's current GPU, on which it creates a context. Returns the error of the
/// real runtime if there is no GPU or a kernel has failed.
cudaError_t on_gpu(const std::function<cudaError_t(Driver&, int gpu)>& f);
/// The same for a call on a stream. on_stream() also returns an error if the stream belongs to an invalid
/// capture.
cudaError_t on_stream(cudaStream_t stream, const std::function<cudaError_t(Driver&, EmulatedStream&)>& f);
cudaError_t on_any_stream(cudaStream_t stream, const std::function<cudaError_t(Driver&, EmulatedStream&)>& f);
/// Implements cudaFuncSetAttribute for a kernel of Driver::kernel_settings().
cudaError_t set_kernel_attribute(const void* kernel, const std::string& name, cudaFuncAttribute attribute,
                                 int value);
/// Allocates pinned or managed memory.
cudaError_t allocate_on_host(void** block, std::size_t bytes, bool is_managed);
/// Invalidates `capture` because of a call that cannot be captured, and returns CUDA's error.
cudaError_t unsupported(Capture& capture);

}  // namespace convoy::emulator
