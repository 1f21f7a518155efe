// StepTimer: the time that a device spends on training steps, excluding pauses.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {

/// A stopwatch on the device's clock. It enqueues time marks with the device's work, so timing a step does
/// not block the host.
class StepTimer {
 public:
  using Mark = std::shared_ptr<Event>;
  /// The time intervals between pauses, as pairs of begin and end.
  using Window = std::vector<std::pair<Mark, Mark>>;

  explicit StepTimer(DeviceContext device) : device_(std::move(device)) {}

  /// Starts the timer before a step. Does nothing if it is running.
  void run();
  /// Stops the timer after a step. Does nothing if it is stopped.
  void pause();
  /// Returns all intervals since the last call, up to now. The timer remains running or stopped.
  Window take();

  /// Returns the total duration of a window. Blocks until the device has reached its last mark.
  static double seconds(const Window& window);

 private:
  Mark mark() const;

  DeviceContext device_;
  Mark begin_;  // beginning of the current interval; null while stopped
  Window done_;
};

}  // namespace convoy
