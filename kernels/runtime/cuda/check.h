// The macro CUDA_CHECK, which throws an error if a CUDA runtime call fails. Example:
//   CUDA_CHECK(cudaMalloc(&block, bytes));
// Does not use fmt, which does not compile in device sources.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "convoy/kernels/base/error.h"

namespace convoy {

/// Returns whether the status reports a call that stream capture forbids, or an invalid capture.
constexpr bool is_about_capturing(cudaError_t status) {
  return status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
}

/// Returns if `status` is cudaSuccess. Otherwise throws an error with the text and the place of the call:
/// CaptureError if stream capture was the cause, else DeviceError.
inline void cuda_check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  const char* const slash = std::strrchr(file, '/');  // CMake passes full paths
  if (slash != nullptr) file = slash + 1;
  const std::string message = std::string(call) + " failed: " + cudaGetErrorString(status) + " (" +
                              cudaGetErrorName(status) + ", " + file + ":" + std::to_string(line) + ")";
  if (is_about_capturing(status)) throw CaptureError(message);
  throw DeviceError(message);
}

}  // namespace convoy

/// Checks the status that `call` returns. A macro, because the error message contains the text of the call.
#define CUDA_CHECK(call) ::convoy::cuda_check((call), #call, __FILE__, __LINE__)
