// An owner of an ncclComm_t that one thread uses and another thread may abort.
#pragma once

#include <nccl.h>

#include <functional>
#include <future>
#include <mutex>
#include <thread>

#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

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

  /// Makes the GPU current and creates the communicator on it. Collective: every rank of `size` calls it with
  /// the same `id`.
  void init(const ncclUniqueId& id, int rank, int size, const Deadline& deadline);
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
