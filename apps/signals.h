// SIGINT and SIGTERM: finish the step, save, leave.
#pragma once

namespace convoy {

/// From construction on, the first SIGINT or SIGTERM is only noted; a second SIGINT ends the process at once.
/// The destructor restores what was there. One at a time.
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
