// An owner of an ncclComm_t that one thread uses and another thread may abort.
#pragma once

#include <nccl.h>

#include <functional>
#include <mutex>

#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

/// A non-blocking ncclComm_t. NCCL's calls return before they are complete; the methods here poll until they
/// are. So an event recorded after a call follows the call's work, and a CUDA graph capture contains it.
/// destroy() or abort(), whichever runs first, frees the communicator once.
///
/// init(), call() and destroy() block until the NCCL call is complete. They throw PeerError if NCCL reports
/// an error, if the deadline passes, or if the communicator was aborted before or meanwhile.
class NcclHandle {
 public:
  NcclHandle() = default;
  ~NcclHandle() { abort(); }
  NcclHandle(const NcclHandle&) = delete;
  NcclHandle& operator=(const NcclHandle&) = delete;

  /// Creates the communicator on the calling thread's current GPU. Collective: every rank of `size` calls it
  /// with the same `id`.
  void init(const ncclUniqueId& id, int rank, int size, const Deadline& deadline);
  /// Calls `f` with the communicator and polls until the call is complete.
  void call(const std::function<ncclResult_t(ncclComm_t)>& f, const Deadline& deadline);
  /// Finalizes and frees the communicator. Collective: every rank calls it after its last launch.
  void destroy(const Deadline& deadline);

  /// Throws PeerError if NCCL has found an asynchronous error in launched work. Does not wait.
  void check();
  /// Cancels the work in flight on this rank's GPU and frees the communicator. Not collective. Thread-safe.
  /// Other calls fail at once, even if ncclCommAbort hangs. A second call returns at once.
  void abort() noexcept;

 private:
  /// Runs `f` under the mutex. Throws PeerError if the communicator has been freed.
  void locked(const std::function<void()>& f);
  /// Waits until NCCL reports that the last call is complete.
  void poll(const Deadline& deadline);

  std::mutex mutex_;
  ncclComm_t comm_ = nullptr;
  bool is_freed_ = false;
};

}  // namespace convoy::dist
