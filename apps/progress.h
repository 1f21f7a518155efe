// What a person sees of a training: on a terminal one bar that is redrawn, in a pipe a line every so many
// steps.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/trainer.h"

namespace convoy {

/// "1:02:03", "4:05".
std::string format_duration(double seconds);

class Progress {
 public:
  /// may_redraw: whether what looks like a terminal is one. mpirun gives its ranks one of its own, and sends
  /// what they write there to wherever its own output goes.
  Progress(std::int64_t total_steps, std::int64_t steps_per_epoch, bool may_redraw = true);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void step(const StepReport& report);
  void evaluating(std::int64_t done, std::int64_t count);
  void evaluated(double accuracy) { accuracy_ = accuracy; }
  /// A line that stays.
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
  double accuracy_ = -1;  // of the last evaluation; negative: none yet
  Clock::time_point last_draw_;
};

/// Two columns, aligned.
void print_table(const std::vector<std::pair<std::string, std::string>>& rows);

}  // namespace convoy
