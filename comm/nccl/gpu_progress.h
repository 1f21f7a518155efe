// Counters of the collectives that a GPU has started and completed, readable by the host without waiting.
#pragma once

#include "convoy/comm/core/collective_signature.h"
#include "convoy/kernels/progress_note.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy::dist {

/// Two counters in pinned host memory that kernels on the communication stream increment before and after
/// each collective. They also work in a replayed CUDA graph, of which the host sees nothing else.
class GpuProgress {
 public:
  explicit GpuProgress(const DeviceContext& device);
  /// Frees the counters. The caller makes sure that no stream still has one of the counting kernels pending.
  ~GpuProgress();
  GpuProgress(const GpuProgress&) = delete;
  GpuProgress& operator=(const GpuProgress&) = delete;

  /// Enqueues the kernel that counts `collective` as started. Call it just before the collective's launch.
  void note_start(CudaStream& stream, const CollectiveSignature& collective);
  /// Enqueues the kernel that counts `collective` as completed. Call it just after the collective's launch.
  void note_completion(CudaStream& stream, const CollectiveSignature& collective);

  /// Returns the number of collectives started so far, replays included. Thread-safe; does not wait.
  std::uint64_t started() const;
  /// Returns the number of collectives completed so far, replays included. Thread-safe; does not wait.
  std::uint64_t completed() const;
  /// Returns the collective that was started last. The value is reliable only while the GPU makes no
  /// progress: it is read without synchronization.
  CollectiveSignature current() const;

 private:
  DeviceContext device_;
  kernels::ProgressNote* notes_;  // [0]: started, [1]: completed
};

}  // namespace convoy::dist
