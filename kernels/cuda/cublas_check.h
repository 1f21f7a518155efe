// CUBLAS_CHECK(cublasLtCreate(&handle)): a failed call becomes a DeviceError with the call's text and place.
#pragma once

#include <cublasLt.h>

#include <cstring>
#include <string>

#include "kernels/runtime/error.h"

namespace convoy {

inline void cublas_check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const char* const slash = std::strrchr(file, '/');  // CMake passes whole paths
  if (slash != nullptr) file = slash + 1;
  throw DeviceError(std::string(call) + " failed: " + cublasLtGetStatusString(status) + " (" + file + ":" +
                    std::to_string(line) + ")");
}

}  // namespace convoy

/// A macro because the text of the expression is the message.
#define CUBLAS_CHECK(call) ::convoy::cublas_check((call), #call, __FILE__, __LINE__)
