// Handlers of signals that let a program finish its step, save and exit.
#pragma once

#include <algorithm>
#include <array>
#include <csignal>

namespace convoy {

/// The signals that stop a training. Batch systems send SIGTERM, or SIGUSR1 or SIGUSR2 on request (Slurm's
/// --signal); a closed terminal sends SIGHUP, and Ctrl-C SIGINT. If ranks receive different signals, the
/// first of this list counts.
inline constexpr std::array kStopSignals = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGINT};
/// Returns the position of a signal in kStopSignals, from 1; 0 for another signal, or none.
inline int stop_code_of(int signal) {
  const auto place = std::ranges::find(kStopSignals, signal);
  return place == kStopSignals.end() ? 0 : static_cast<int>(place - kStopSignals.begin()) + 1;
}

/// Installs handlers of kStopSignals for its lifetime, except for SIGHUP if it is ignored, as under nohup.
/// The first signal is only recorded; a second SIGINT ends the process at once. Several threads may hold
/// instances: the first one installs the handlers, the last one restores the previous handlers, and all see
/// the same signal.
class StopSignals {
 public:
  /// If `announces` is true for any instance, the first SIGINT prints to stderr that the step will be
  /// finished, and that a second one does not wait for it.
  explicit StopSignals(bool announces = false);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// Returns the received signal, or 0. Thread-safe.
  static int received();
};

}  // namespace convoy
