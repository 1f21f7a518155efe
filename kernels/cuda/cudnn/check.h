// CUDNN_CHECK(call): throws DeviceError with the text of the call, its file and line, and cuDNN's error
// message if it failed.
#pragma once

#include <cudnn.h>

#include <string>

namespace convoy::kernels {

/// Returns a description of `status`, such as "CUDNN_STATUS_BAD_PARAM (2000): …", with the message of the
/// calling thread's last failed call.
std::string cudnn_failure(cudnnStatus_t status);

/// Throws DeviceError if `status` is an error. CUDNN_CHECK calls it.
void cudnn_check(cudnnStatus_t status, const char* call, const char* file, int line);

}  // namespace convoy::kernels

/// A macro, because the message contains the text of the expression.
#define CUDNN_CHECK(call) ::convoy::kernels::cudnn_check((call), #call, __FILE__, __LINE__)
