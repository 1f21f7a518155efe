// CUDNN_CHECK(cudnnCreate(&handle)): a failed call becomes a DeviceError with the call's text and place, and
// with what cuDNN says of it.
#pragma once

#include <cudnn.h>

#include <string>

namespace convoy {

/// "CUDNN_STATUS_BAD_PARAM (2000): …", in the words of the calling thread's last failed call.
std::string cudnn_failure(cudnnStatus_t status);

void cudnn_check(cudnnStatus_t status, const char* call, const char* file, int line);

}  // namespace convoy

/// A macro because the text of the expression is the message.
#define CUDNN_CHECK(call) ::convoy::cudnn_check((call), #call, __FILE__, __LINE__)
