// A step recorded once and replayed many times: one launch in the place of hundreds.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>

#include "kernels/runtime/device.h"
#include "kernels/runtime/error.h"

namespace convoy {

/// Records, without running it, what `record` enqueues on a GPU's compute stream, and whatever other streams
/// do between an event of that stream that they wait for and one of theirs that it waits for. Each replay
/// runs that work once more, with the same addresses and arguments: what is to change from replay to replay
/// lies in device memory, and the host code of `record` runs once only.
///
/// Memory. What the calling thread allocates in `record` of the device's memory and of its staging memory
/// comes from pools of the graph's own. A block released goes back to its pool, for later allocations of the
/// same recording; nobody else gets it as long as the graph lives. When the graph goes, what nobody holds
/// goes back to the allocators; what somebody still holds is his, as any other block. Memory that `record`
/// has found and uses must stay allocated as long as the graph is replayed.
class WorkGraph {
 public:
  /// GPUs alone have graphs.
  static bool supported(const Device& device);

  /// Throws UsageError where the device supports none, or its stream is recording already; CaptureError
  /// where the work cannot be recorded: it waits on the host, copies from or to host memory that is not
  /// staging(), finds no memory, …; and what `record` throws. After each of them nothing of the work has run,
  /// and the stream and the device are as usable as before.
  WorkGraph(const Device& device, const std::function<void()>& record);
  /// Waits for the replays under way.
  ~WorkGraph();
  WorkGraph(const WorkGraph&) = delete;
  WorkGraph& operator=(const WorkGraph&) = delete;

  /// Enqueues the recorded work on the compute stream, after all that is on it.
  void replay();

  /// Of the device's memory, reserved as long as the graph lives.
  std::size_t pool_bytes() const;

  /// What a kind of device makes of it.
  struct Recording {
    virtual ~Recording() = default;
    virtual void replay() = 0;
    virtual std::size_t pool_bytes() const = 0;
  };

 private:
  Device device_;
  std::unique_ptr<Recording> recording_;
};

}  // namespace convoy
