// CUDA graphs: work that is captured once and replayed many times, with one launch instead of hundreds.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

/// A captured sequence of work on a GPU. The constructor captures, without running it, the work that a
/// function enqueues on the compute stream. It also captures the work of other streams that fork from the
/// compute stream and join it again by events; the side stream joins it at the end in any case. Each replay
/// runs the captured work with the same addresses and arguments. Values that change between replays must be
/// stored in device memory. The host code of the function runs only once.
///
/// Memory: during the capture, allocations of the calling thread from the device's memory and from its
/// staging memory come from pools that belong to the graph. A released block returns to its pool and serves
/// later allocations of the same capture. No other code gets it while the graph exists. When the graph is
/// destroyed, free blocks return to the allocators. Blocks still in use remain valid and are released
/// normally. Memory that was allocated before the capture and that the work uses must stay allocated while
/// the graph is replayed.
class CudaGraph {
 public:
  /// Returns whether the device supports CUDA graphs. Only GPUs do.
  static bool supported(const DeviceContext& device);

  /// Calls `work` once and captures what it enqueues. Throws UsageError if the device does not support graphs
  /// or its compute stream is already capturing. Throws CaptureError if the work cannot be captured: for
  /// example, it blocks the host, copies from or to host memory other than staging(), or runs out of memory.
  /// Other exceptions of `work` are rethrown. After an exception none of the work has run, and the stream and
  /// the device are usable as before.
  CudaGraph(const DeviceContext& device, const std::function<void()>& work);
  /// Blocks until all replays have completed.
  ~CudaGraph();
  CudaGraph(const CudaGraph&) = delete;
  CudaGraph& operator=(const CudaGraph&) = delete;

  /// Enqueues the captured work on the compute stream, after all work submitted so far. Does not block.
  void replay();

  /// Returns the bytes of device memory that are reserved while the graph exists.
  std::size_t pool_bytes() const;

  /// The device-specific implementation.
  struct Capture {
    virtual ~Capture() = default;
    virtual void replay() = 0;
    virtual std::size_t pool_bytes() const = 0;
  };

 private:
  DeviceContext device_;
  std::unique_ptr<Capture> capture_;
};

}  // namespace convoy
