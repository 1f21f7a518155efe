// convoy-bench-step: its flags, the measurement of whole training steps, and the output.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/apps/train/options/options.h"
#include "convoy/apps/train/trainer.h"
#include "tests/cuda_emulator/counted/counted_launch.h"

namespace convoy::bench {

/// The values of the flags.
struct StepOptions {
  TrainOptions training;              // model, batch, optimizer, precision, machine, ranks
  std::optional<std::int64_t> steps;  // per round
  std::int64_t rounds = 5;
  std::int64_t warmup = 3;  // unmeasured rounds
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

/// The results of the measured rounds on rank 0.
struct StepFigures {
  std::vector<double> step_ms;  // by round
  std::vector<double> images_per_second;
  /// Peak memory in use of the device's allocator, including images that are stored on the device.
  std::size_t peak_bytes = 0;
  /// Requests of the allocator to the system or driver after the warm-up: 0 in a steady state.
  std::uint64_t allocations = 0;
  /// With --count: of one step.
  std::vector<CountedLaunch> launches;
};

/// Returns a generated data set for the steps. It consists of whole batches, and is large enough that ends of
/// epochs are rare.
data::DataSet step_images(const StepOptions& options);

/// Runs the warm-up and the measured rounds with a Trainer. Collective call. `options` must be resolved for
/// `device`.
StepFigures measure_steps(const StepOptions& options, const DeviceContext& device, const data::DataSet& data,
                          Job& job);

/// Returns the context of the results: step, batch, precision, threads, ranks, versions and machine.
/// `hardware` is DeviceContext::hardware() of a GPU, and empty on the CPU.
nlohmann::ordered_json about_step(const StepOptions& options, const std::string& hardware,
                                  const std::string& ranks, int world_size);
/// Returns rounds, medians and memory.
nlohmann::ordered_json to_json(const StepFigures& figures);

/// Prints the context to stdout.
void print_about(const nlohmann::ordered_json& about);
/// Prints the results to stdout.
void print_figures(const nlohmann::ordered_json& figures);

/// Returns the Markdown table of --count: what its kernels, library calls, copies and fills move in total, by
/// name, and the time that a model of an H100 predicts, the longest first; then the predicted step and rate.
/// `images` is the number of images per step.
std::string step_counts_table(const std::vector<CountedLaunch>& launches, std::int64_t images);

/// Returns each launch in order, and the predicted step.
nlohmann::ordered_json step_counts_json(const std::vector<CountedLaunch>& launches);

}  // namespace convoy::bench
