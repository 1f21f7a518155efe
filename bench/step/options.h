// The flags of convoy-bench-step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "convoy/apps/common/command_line.h"
#include "convoy/apps/train/options.h"

namespace convoy::bench {

/// The values of the flags.
struct StepOptions {
  TrainOptions training;              // model, batch, optimizer, precision, machine, ranks
  std::optional<std::int64_t> steps;  // per round
  std::int64_t rounds = 5;
  std::int64_t warmup = 3;  // unmeasured rounds
  bool breakdown = false;
  bool count = false;
  std::string json;  // file

  /// Returns the number of steps of all rounds. `steps` must be set.
  std::int64_t total_steps() const { return (warmup + rounds) * *steps; }
};

/// Returns the command line that parses into `options`, which must outlive it.
CommandLine step_command_line(StepOptions& options);

/// Sets the options that depend on other flags: steps, and the training recipe.
void resolve(StepOptions& options);

/// Throws UsageError if flags contradict each other.
void check_consistency(const StepOptions& options, const CommandLine& line);

}  // namespace convoy::bench
