// An owner of an ncclComm_t that one thread uses and another thread may abort, and the NCCL_CHECK macro.
#pragma once

#include <nccl.h>

#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/core/deadline.h"
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
  fail<PeerError>("{} failed: {}, {}:{}", call, nccl_failure(status, nullptr), file, line);
}

/// A non-blocking ncclComm_t. NCCL's calls return before they are complete; the methods here poll until they
/// are. So an event recorded after a call follows the call's work, and a CUDA graph capture contains it.
/// destroy() or abort(), whichever runs first, frees the communicator once.
///
/// NCCL frees a communicator only once all CUDA graphs that contain one of its collectives have been
/// destroyed. Destroy them before destroy() and before the handle.
///
/// init(), call() and destroy() block until the NCCL call is complete. They throw PeerError if NCCL reports
/// an error, if the deadline passes, or if the communicator was aborted before or meanwhile.
class NcclHandle {
 public:
  /// `gpu` is the number of the communicator's GPU. The destructor waits up to `abort_seconds` for
  /// ncclCommAbort.
  explicit NcclHandle(int gpu, double abort_seconds = 10) : gpu_(gpu), abort_seconds_(abort_seconds) {}
  /// Calls abort() and waits for ncclCommAbort. If NCCL hangs or a graph still exists, leaks the communicator
  /// after `abort_seconds`.
  ~NcclHandle();
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// Returns how many ids init() should get: one for each 128 ranks, or part of them. The ranks meet at the process that has
  /// made an id.
  static std::size_t ids_for(int size) { return (static_cast<std::size_t>(size) + 127) / 128; }
  /// Makes the GPU current and creates the communicator on it. Collective: every rank of `size` calls it with
  /// the same ids. If NCCL has no function for several ids (before 2.23), only the first one is used. `max_ctas` is
  /// CommOptions::nccl_ctas.
  void init(std::vector<ncclUniqueId> ids, int rank, int size, const Deadline& deadline, int max_ctas = 0);
  /// Calls `f` with the communicator and polls until the call is complete.
  void call(const std::function<ncclResult_t(ncclComm_t)>& f, const Deadline& deadline);
  /// Finalizes and frees the communicator. Collective: every rank calls it after its last launch.
  void destroy(const Deadline& deadline);

  /// Throws PeerError if NCCL has found an asynchronous error in launched work. Does not wait.
  void check();
  /// Starts a thread that cancels the work in flight on this rank's GPU and frees the communicator with
  /// ncclCommAbort. Returns at once, so that its caller can destroy the graphs for which ncclCommAbort waits.
  /// Other calls fail from now on. Does nothing on a second call. Not collective. Thread-safe.
  void abort() noexcept;

 private:
  /// Runs `f` under the mutex. Throws PeerError if the communicator has been freed.
  void locked(const std::function<void()>& f);
  /// Waits until NCCL reports that the last call is complete. An error names `awaited`.
  void poll(const Deadline& deadline, const char* awaited = "other ranks");

  const int gpu_;
  const double abort_seconds_;
  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  bool is_freed_ = false;
  std::thread aborting_;          // calls ncclCommAbort
  std::future<void> is_aborted_;  // ready when ncclCommAbort has returned
};

}  // namespace convoy::dist

/// Evaluates an NCCL call, as in NCCL_CHECK(ncclGetUniqueId(&id)), and throws PeerError if it fails. A macro,
/// because the message contains the text of the call.
#define NCCL_CHECK(call) ::convoy::dist::nccl_check((call), #call, __FILE_NAME__, __LINE__)
