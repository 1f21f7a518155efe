// TimeMonitor: the time of steps and epochs, and the samples per second.
#pragma once

#include <chrono>
#include <cstdint>

#include "convoy/engine/training/callback.h"

namespace convoy::training {

/// The time of some steps.
struct StepTimes {
  std::int64_t steps = 0;    // number of steps
  std::int64_t samples = 0;  // of all ranks
  double seconds = 0;        // without evaluations and checkpoints

  /// Returns the mean rate of all ranks.
  double samples_per_second() const { return static_cast<double>(samples) / seconds; }
  /// Returns the mean time of a step in milliseconds.
  double step_ms() const { return seconds * 1e3 / static_cast<double>(steps); }
};

/// Sums up the time of steps, from event to event on the host's clock, without the time before
/// on_evaluation(). convoy-train measures on the clock of the device instead.
class TimeMonitor final : public Callback {
 public:
  /// Begins the first step. Prints a line for each epoch to stdout if `prints` is set.
  explicit TimeMonitor(bool prints = false) : prints_(prints) {}

  void on_step(const StepResult& result) override;
  void on_epoch(const EpochResult& result) override;
  void on_evaluation(const EvaluationResult& /*result*/) override { begin_ = Clock::now(); }

  /// Returns the time of all steps.
  const StepTimes& total() const { return total_; }
  /// Returns the time of the steps since the last epoch.
  const StepTimes& epoch() const { return epoch_; }
  /// Continues from the total of a checkpoint.
  void restore(const StepTimes& total) { total_ = total; }

 private:
  using Clock = std::chrono::steady_clock;

  bool prints_;
  Clock::time_point begin_ = Clock::now();  // of the current step
  StepTimes total_, epoch_;
};

}  // namespace convoy::training
