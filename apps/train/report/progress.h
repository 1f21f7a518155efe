// Progress: the progress of a training on standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "convoy/apps/train/step_reporter.h"

namespace convoy {

/// Formats a duration as "1:02:03" or "4:05".
std::string format_duration(double seconds);

/// A progress bar on a terminal, or one line per measured step in a file or pipe.
class Progress {
 public:
  /// `may_redraw` must be false under mpirun, whose ranks write to a pseudo-terminal that may end in a file.
  Progress(std::int64_t total_steps, std::int64_t steps_per_epoch, bool may_redraw = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows a completed step.
  void step(const StepReport& report);
  /// Shows that `done` of `count` images are evaluated. Does nothing without a terminal.
  void evaluating(std::int64_t done, std::int64_t count);
  /// Sets the test accuracy that the bar shows.
  void evaluated(double accuracy) { accuracy_ = accuracy; }
  /// Prints a permanent line above the bar.
  void line(const std::string& text);

 private:
  void draw(const std::string& text);
  void clear();
  std::string describe(const StepReport& report) const;
  double remaining_seconds(std::int64_t step) const;

  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool drawn_ = false;
  std::int64_t total_, per_epoch_;
  StepMeasurements last_;
  double accuracy_ = -1;  // of the latest evaluation; negative: none yet
  Clock::time_point last_draw_;
};

/// Prints rows of a name and a value in two aligned columns.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace convoy
