// How long a device has worked on training steps, by its own clock, without what came between them.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "kernels/runtime/time_mark.h"

namespace convoy {

/// Marks stand in the device's work, so that nobody waits for a step to end in order to time it.
class StepTimer {
 public:
  using Mark = std::shared_ptr<TimeMark>;
  /// Stretches of steps without a pause between them.
  using Window = std::vector<std::pair<Mark, Mark>>;

  explicit StepTimer(Device device) : device_(std::move(device)) {}

  /// Before a step: the clock runs, from here if it stood still.
  void run();
  /// After a step, before whatever is not to count.
  void pause();
  /// All stretches since the last call, up to here; the clock goes on as it was.
  Window take();

  /// Waits for the last of them.
  static double seconds(const Window& window);

 private:
  Mark mark() const;

  Device device_;
  Mark begin_;  // of the stretch under way; null while the clock stands still
  Window done_;
};

}  // namespace convoy
