// The thread that ends waiting which nobody else would end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "comm/deadline.h"
#include "comm/gpu_progress.h"
#include "comm/heartbeat.h"
#include "comm/nccl_handle.h"

namespace convoy {

/// Looks, a hundred times a second, for what makes waiting pointless: a collective that the GPU has entered
/// and that has not moved for the whole timeout; an error of NCCL's; the heartbeat's end, which is that of a
/// rank. Then it tells the other ranks, calls on_failure on its own thread, and stops.
class NcclWatchdog {
 public:
  struct Watched {
    NcclHandle& handle;
    const GpuProgress& progress;
    std::string name;  // "rank 1 of 4 (nccl)"
    double timeout_seconds;
  };

  NcclWatchdog(std::unique_ptr<Communicator> heartbeat, Watched watched,
               std::function<void(std::exception_ptr)> on_failure);
  /// Whatever it was about to find.
  ~NcclWatchdog();
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// Waits until all ranks have called it, or a failure was found: also that one has not for the whole
  /// timeout.
  void end();
  /// Tells the other ranks. From any thread.
  void abort(const std::string& reason) noexcept { heartbeat_.abort(reason); }

 private:
  void watch();
  void look();
  bool wait();
  /// "rank 2", of those of which `is_late` in the latest beat.
  std::string ranks_that(const std::function<bool(const Beat&)>& is_late) const;

  Watched watched_;
  std::function<void(std::exception_ptr)> on_failure_;
  Heartbeat heartbeat_;
  Beat seen_;        // when the GPU last moved
  Deadline until_;   // it has to move again
  Deadline end_by_;  // the others have to want to end, too
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false, is_ending_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace convoy
