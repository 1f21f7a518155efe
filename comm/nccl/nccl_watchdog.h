// The progress of a GPU in its collectives, and the watchdog thread of an NCCL communicator, which ends waits that
// would otherwise never end.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/nccl/nccl_handle.h"
#include "convoy/kernels/progress_note.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy::dist {

/// Two counters in pinned host memory that kernels on the communication stream set before and after
/// each collective. They also work in a replayed CUDA graph, of which the host sees nothing else.
class GpuProgress {
 public:
  explicit GpuProgress(const DeviceContext& device);
  /// Frees the counters. The caller makes sure that no stream still has one of the counting kernels pending.
  ~GpuProgress();
  GpuProgress(const GpuProgress&) = delete;
  GpuProgress& operator=(const GpuProgress&) = delete;

  /// Enqueues the kernel that counts `collective` as started. Call it just before the collective's launch.
  void note_start(CudaStream& stream, const CollectiveSignature& collective) { note(stream, 0, collective); }
  /// Enqueues the kernel that counts `ended` as completed. Call it just after the collective's launch.
  void note_completion(CudaStream& stream, const CollectiveSignature& ended) { note(stream, 1, ended); }

  /// Returns the number of collectives started so far, replays included. Thread-safe; does not wait.
  std::uint64_t started() const;
  /// Returns the number of collectives completed so far, replays included. Thread-safe; does not wait.
  std::uint64_t completed() const;
  /// Returns the collective that was started last. The value is reliable only while the GPU makes no
  /// progress: it is read without synchronization.
  CollectiveSignature current() const;

 private:
  void note(CudaStream& stream, int which, const CollectiveSignature& collective);

  DeviceContext device_;
  kernels::ProgressNote* notes_;  // [0]: started, [1]: completed
};

/// A thread that polls for three kinds of failure:
/// - the GPU has started a collective and made no progress for the whole timeout;
/// - NCCL reports an asynchronous error;
/// - another rank has died, exited or aborted.
/// On a failure it aborts the other ranks, calls on_failure on its own thread, and stops.
///
/// The ranks exchange nothing before a timeout. Then they exchange their progress once, to find the ranks that are
/// missing: a watchdog whose timeout has passed enters an all-gather, and the others see that it waits there.
class NcclWatchdog {
 public:
  struct Watched {
    NcclHandle& handle;
    const GpuProgress& progress;
    /// The monitor learns which collectives the GPU has started and completed. They are numbered in the order
    /// in which the GPU runs them, which includes replays of CUDA graphs.
    CommOptions options;
  };

  /// Starts the thread. `peers` is a CPU communicator among the same ranks that nothing else uses. The
  /// references in `watched` must outlive the watchdog.
  NcclWatchdog(std::unique_ptr<Communicator> peers, Watched watched,
               std::function<void(std::exception_ptr)> on_failure);
  /// Calls stop().
  ~NcclWatchdog() { stop(); }
  NcclWatchdog(const NcclWatchdog&) = delete;
  NcclWatchdog& operator=(const NcclWatchdog&) = delete;

  /// Ends the thread. Does not wait for other ranks, unless their progress is being exchanged.
  void stop();
  /// Finishes the CPU communicator. Collective: called once stop() has returned on all ranks.
  void finish() { peers_->finish(); }
  /// Aborts the watchdogs of all ranks with `reason`. Thread-safe.
  void abort(const std::string& reason) noexcept { peers_->abort(reason); }

 private:
  /// The progress of one rank.
  struct Progress {
    std::uint64_t started = 0;    // collectives that the GPU has started
    std::uint64_t completed = 0;  // collectives that the GPU has completed
    std::uint64_t is_late = 0;    // 1 if the timeout of `current` has passed
    CollectiveSignature current;  // the last one that was started
  };

  void watch();
  void poll();
  void report_progress(const Progress& now) const;
  /// Exchanges the progress of all ranks, and throws PeerError that names those that are missing.
  [[noreturn]] void name_missing_ranks(const Progress& local);
  bool sleep();
  Deadline deadline() const {
    return Deadline(watched_.options.timeout_seconds, watched_.options.deadline_floor.get());
  }

  const std::unique_ptr<Communicator> peers_;
  Watched watched_;
  std::function<void(std::exception_ptr)> on_failure_;
  Progress last_;               // as of the last poll
  Deadline progress_deadline_;  // renewed whenever the GPU is idle or makes progress
  Deadline next_poll_{0};       // of the other ranks
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_stopping_ = false;
  std::thread thread_;  // declared last: it uses all members above
};

}  // namespace convoy::dist
