// CUDA_CHECK(cudaMalloc(&block, bytes)): a failed call becomes a DeviceError with the call's text and place.
// Free of fmt, which does not compile in device sources.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <string>

#include "kernels/runtime/error.h"

namespace convoy {

inline void cuda_check(cudaError_t status, const char* call, const char* file, int line) {
  if (status == cudaSuccess) return;
  const char* const slash = std::strrchr(file, '/');  // CMake passes whole paths
  if (slash != nullptr) file = slash + 1;
  throw DeviceError(std::string(call) + " failed: " + cudaGetErrorString(status) + " (" +
                    cudaGetErrorName(status) + ", " + file + ":" + std::to_string(line) + ")");
}

}  // namespace convoy

/// A macro because the text of the expression is the message.
#define CUDA_CHECK(call) ::convoy::cuda_check((call), #call, __FILE__, __LINE__)
