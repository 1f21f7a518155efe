// CUDA_CHECK(cudaMalloc(&block, bytes)): a failed call becomes a DeviceError with the call's text and place.
// Free of fmt, which does not compile in device sources.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "kernels/runtime/error.h"

namespace convoy {

/// Of calls that stream capture forbids, and of what was captured wrongly.
constexpr bool is_about_capturing(cudaError_t status) {
  return status >= cudaErrorStreamCaptureUnsupported && status <= cudaErrorStreamCaptureWrongThread;
}

inline void cuda_check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  const char* const slash = std::strrchr(file, '/');  // CMake passes whole paths
  if (slash != nullptr) file = slash + 1;
  const std::string message = std::string(call) + " failed: " + cudaGetErrorString(status) + " (" +
                              cudaGetErrorName(status) + ", " + file + ":" + std::to_string(line) + ")";
  if (is_about_capturing(status)) throw CaptureError(message);
  throw DeviceError(message);
}

}  // namespace convoy

/// A macro because the text of the expression is the message.
#define CUDA_CHECK(call) ::convoy::cuda_check((call), #call, __FILE__, __LINE__)
