// TimeLeft: an estimate of how long a training still takes.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

namespace convoy {

/// The work of a training whose duration is estimated.
struct WorkPlan {
  std::int64_t total_steps = 0;
  /// Steps between two evaluations; 0: only the evaluation at the end.
  std::int64_t steps_per_evaluation = 0;
  /// The expected duration of an evaluation in steps, before the first one has been measured.
  double steps_of_evaluation = 0;
  /// The duration of what follows the last step besides its evaluation, in evaluations.
  double final_evaluations = 0;
};

/// Estimates the time until the end of a training from the means over all of its steps and evaluations so far, so
/// that the estimate does not jump. The first step, which takes longer, does not count.
class TimeLeft {
 public:
  using Clock = std::chrono::steady_clock;

  /// Creates an estimate for the work of `plan`.
  explicit TimeLeft(const WorkPlan& plan) : plan_(plan) {}

  /// Notes that `step` steps are complete at `now`.
  void step(std::int64_t step, Clock::time_point now);
  /// Notes that the evaluation after the last noted step is complete at `now`.
  void evaluated(Clock::time_point now);
  /// Returns the estimate in seconds after the last noted step; nullopt before the second step.
  std::optional<double> seconds() const;

 private:
  using Seconds = std::chrono::duration<double>;

  /// Returns the number of evaluations that follow, including that of the last noted step if it is not complete.
  std::int64_t evaluations_left() const;

  WorkPlan plan_;
  std::int64_t first_step_ = -1, last_step_ = -1;  // -1: none
  Clock::time_point first_, last_;                 // when they were complete
  Seconds in_evaluations_{0};
  std::int64_t evaluations_ = 0;
  std::int64_t evaluated_step_ = -1;
};

}  // namespace convoy
