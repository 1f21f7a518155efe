// SIGINT and SIGTERM: finish the step, save, leave.
#pragma once

namespace convoy {

/// From construction on, the first SIGINT or SIGTERM is only noted; a second SIGINT ends the process at once.
/// The destructor restores what was there. Of several at a time, a thread each, the first installs and the
/// last restores; all see the same signal.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that arrived, or 0.
  static int received();
};

}  // namespace convoy
