// The flags of convoy-bench-step.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "apps/command_line.h"
#include "apps/train_options.h"

namespace convoy::bench {

struct StepOptions {
  TrainOptions training;              // model, batch, optimizer, precision, machine, ranks
  std::optional<std::int64_t> steps;  // of a round
  std::int64_t rounds = 5;
  std::int64_t warmup = 3;  // rounds that are not counted
  bool breakdown = false;
  bool compare_pytorch = false;
  bool cold_start = false;
  std::string python = "python3";
  std::string json;  // file

  std::int64_t total_steps() const { return (warmup + rounds) * *steps; }
};

/// The table of flags over `options`, which must outlive it.
CommandLine step_command_line(StepOptions& options);

/// Fills what depends on other flags: steps, and the training's recipe.
void resolve(StepOptions& options);

/// UsageError for flags that contradict each other.
void check_consistency(const StepOptions& options, const CommandLine& line);

}  // namespace convoy::bench
