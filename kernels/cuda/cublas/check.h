// CUBLAS_CHECK(call): throws DeviceError with the text of the call, its file and line, and the status if it
// failed.
#pragma once

#include <cublasLt.h>

#include <cstring>
#include <string>

#include "convoy/kernels/base/error.h"

namespace convoy::kernels {

/// Throws DeviceError if `status` is an error. CUBLAS_CHECK calls it.
inline void cublas_check(cublasStatus_t status, const char* call, const char* file, int line) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  const char* const slash = std::strrchr(file, '/');  // CMake passes whole paths
  if (slash != nullptr) file = slash + 1;
  throw DeviceError(std::string(call) + " failed: " + cublasLtGetStatusString(status) + " (" + file + ":" +
                    std::to_string(line) + ")");
}

}  // namespace convoy::kernels

/// A macro, because the message contains the text of the expression.
#define CUBLAS_CHECK(call) ::convoy::kernels::cublas_check((call), #call, __FILE__, __LINE__)
