// The watchdog thread of an NCCL communicator, which ends waits that would otherwise never end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "convoy/comm/core/deadline.h"
#include "convoy/comm/nccl/gpu_progress.h"
#include "convoy/comm/nccl/heartbeat.h"
#include "convoy/comm/nccl/nccl_handle.h"

namespace convoy::dist {

/// A thread that polls a hundred times a second for three kinds of failure:
/// - the GPU has started a collective and made no progress for the whole timeout;
/// - NCCL reports an asynchronous error;
/// - the heartbeat failed, which means that a peer died, exited, aborted or timed out.
/// On a failure it aborts the heartbeat of the other ranks, calls on_failure on its own thread, and stops.
class NcclWatchdog {
 public:
  struct Watched {
    NcclHandle& handle;
    const GpuProgress& progress;
    std::string name;  // for messages: "rank 1 of 4 (nccl)"
    double timeout_seconds;
    /// A time before which the timeouts do not pass. May be null.
    std::shared_ptr<const DeadlineFloor> deadline_floor;
    /// Learns which collectives the GPU has started and completed. They are numbered in the order in which the
    /// GPU runs them, which includes replays of CUDA graphs. May be null.
    std::shared_ptr<CollectiveMonitor> monitor;
  };

  /// Starts the thread. `heartbeat` is a CPU communicator among the same ranks that nothing else uses. The
  /// references in `watched` must outlive the watchdog.
  NcclWatchdog(std::unique_ptr<Communicator> heartbeat, Watched watched,
               std::function<void(std::exception_ptr)> on_failure);
  /// Stops the thread and joins it. Does not wait for other ranks.
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// Blocks until all ranks have called it, or until the thread has found a failure. A peer that does not
  /// call it within the timeout is such a failure.
  void finish();
  /// Aborts the heartbeat on all ranks with `reason`. Thread-safe.
  void abort(const std::string& reason) noexcept { heartbeat_.abort(reason); }

 private:
  void watch();
  void poll();
  void report_progress(const HeartbeatMessage& now) const;
  bool sleep();
  Deadline deadline() const { return Deadline(watched_.timeout_seconds, watched_.deadline_floor.get()); }
  /// Returns the ranks whose latest message satisfies `is_late`, for messages: "rank 2".
  std::string ranks_that(const std::function<bool(const HeartbeatMessage&)>& is_late) const;

  Watched watched_;
  std::function<void(std::exception_ptr)> on_failure_;
  Heartbeat heartbeat_;
  HeartbeatMessage last_;       // as of the last poll
  Deadline progress_deadline_;  // renewed whenever the GPU is idle or makes progress
  Deadline finish_deadline_;    // renewed until finish() is called here
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  bool is_finishing_ = false;
  std::thread thread_;  // declared last: it uses all members above
};

}  // namespace convoy::dist
