// NCCL_CHECK(ncclGetUniqueId(&id)): a failed call becomes a PeerError with the call's text and place, and
// with what NCCL says of it.
#pragma once

#include <nccl.h>

#include <string>
#include <string_view>

#include "kernels/runtime/check.h"

namespace convoy {

/// "unhandled system error (2): Call to connect returned Connection refused": the last error, which may have
/// been another thread's. `comm`: null where there is none.
inline std::string nccl_failure(ncclResult_t status, ncclComm_t comm) {
  std::string text = fmt::format("{} ({})", ncclGetErrorString(status), static_cast<int>(status));
  const char* const why = ncclGetLastError(comm);
  if (why != nullptr && *why != '\0') text += fmt::format(": {}", why);
  return text;
}

inline void nccl_check(ncclResult_t status, const char* call, const char* file, int line) {
  // In progress: started well.
  if (status == ncclSuccess || status == ncclInProgress) return;
  std::string_view name = file;  // CMake passes whole paths
  name.remove_prefix(name.rfind('/') + 1);
  fail<PeerError>("{} failed: {}, {}:{}", call, nccl_failure(status, nullptr), name, line);
}

}  // namespace convoy

/// A macro because the text of the expression is the message.
#define NCCL_CHECK(call) ::convoy::nccl_check((call), #call, __FILE__, __LINE__)
