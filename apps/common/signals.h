// Handlers of SIGINT and SIGTERM that let a program finish its step, save and exit.
#pragma once

namespace convoy {

/// Installs signal handlers for its lifetime. The first SIGINT or SIGTERM is only recorded; a second SIGINT
/// ends the process at once. Several threads may hold instances: the first one installs the handlers, the
/// last one restores the previous handlers, and all see the same signal.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Returns the received signal, or 0. Thread-safe.
  static int received();
};

}  // namespace convoy
