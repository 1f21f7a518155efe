// The NCCL_CHECK macro, which turns a failed NCCL call into a PeerError.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {

/// Returns a description of `status`, for example "unhandled system error (2): Call to connect returned
/// Connection refused". The text after the colon is NCCL's last error, which may come from another thread.
/// `comm` may be null.
inline std::string nccl_failure(ncclResult_t status, ncclComm_t comm) {
  std::string text = fmt::format("{} ({})", ncclGetErrorString(status), static_cast<int>(status));
  const char* const last_error = ncclGetLastError(comm);
  if (last_error != nullptr && *last_error != '\0') text += fmt::format(": {}", last_error);
  return text;
}

/// Throws PeerError with the text, the file and the line of `call` if `status` is an error. Used by
/// NCCL_CHECK.
inline void nccl_check(ncclResult_t status, const char* call, const char* file, int line) {
  // A non-blocking communicator returns ncclInProgress for a call that has started.
  if (status == ncclSuccess || status == ncclInProgress) return;
  std::string_view name = file;  // CMake passes absolute paths
  name.remove_prefix(name.rfind('/') + 1);
  fail<PeerError>("{} failed: {}, {}:{}", call, nccl_failure(status, nullptr), name, line);
}

}  // namespace convoy::dist

/// Evaluates an NCCL call, as in NCCL_CHECK(ncclGetUniqueId(&id)), and throws PeerError if it fails. A macro,
/// because the message contains the text of the call.
#define NCCL_CHECK(call) ::convoy::dist::nccl_check((call), #call, __FILE__, __LINE__)
