// Progress: the progress of a training on standard output.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "convoy/apps/train/report/time_left.h"
#include "convoy/apps/train/step_reporter.h"

namespace convoy {

/// Formats a duration as "1:02:03" or "4:05".
std::string format_duration(double seconds);

/// A part of a line that may be too long for its terminal.
struct LinePart {
  std::string text;
  int leaves = 0;  // parts with the largest number are left out first; those with 0 stay
};
/// Joins the parts with two spaces, without those that must leave so that the line has at most `columns` columns.
/// The text is ASCII.
std::string fit_line(std::vector<LinePart> parts, std::size_t columns);

struct ProgressOptions {
  WorkPlan plan;
  std::int64_t steps_per_epoch = 1;
  /// False under mpirun, whose ranks write to a pseudo-terminal that may end in a file.
  bool may_redraw = true;
  /// Shows permanent lines only.
  bool quiet = false;
};

/// The progress of a training on standard output: one line that is redrawn on a terminal, or one line per measured
/// step in a file or pipe.
class Progress {
 public:
  explicit Progress(const ProgressOptions& options);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  /// Shows a completed step.
  void step(const StepReport& report);
  /// Shows that `done` of `count` images are evaluated. Does nothing without a terminal.
  void evaluating(std::int64_t done, std::int64_t count);
  /// Shows the result of an evaluation, `text`, and from now on the test accuracy in the line.
  void evaluated(double accuracy, const std::string& text);
  /// Prints a permanent line above the line of progress.
  void line(const std::string& text);
  /// Does the same unless ProgressOptions::quiet.
  void note(const std::string& text) {
    if (!options_.quiet) line(text);
  }

 private:
  void draw(const std::string& text);
  void clear();
  /// Returns the parts of the line after a step, in the order in which they are shown.
  std::vector<LinePart> describe(const StepReport& report) const;

  using Clock = std::chrono::steady_clock;
  ProgressOptions options_;
  TimeLeft time_left_;
  bool terminal_;
  bool drawn_ = false;
  StepMeasurements last_;
  double accuracy_ = -1;  // of the latest evaluation; negative: none yet
  Clock::time_point last_draw_;
};

/// Prints rows of a name and a value in two aligned columns.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace convoy
