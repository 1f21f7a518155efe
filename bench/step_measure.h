// Training steps, timed.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "apps/job.h"
#include "apps/trainer.h"
#include "bench/step_options.h"

namespace convoy::bench {

/// What rank 0 saw of the counted rounds.
struct StepFigures {
  std::vector<double> step_ms;  // by round
  std::vector<double> images_per_second;
  std::size_t peak_bytes = 0;  // of the device's allocator: the most in use at once, images on it included
  // How often the allocator has asked the system or the driver for memory since the warm-up: 0 in a steady
  // state.
  std::uint64_t allocations = 0;
  std::optional<StepParts> parts;  // with --breakdown: the mean over the counted steps
};

/// A generated set that the steps go round in: whole batches, as few as keep the ends of epochs rare.
DataSet step_images(const StepOptions& options);

/// Takes the warm-up and the rounds with a Trainer, on all ranks. options: resolved, of a device that is
/// open.
StepFigures measure_steps(const StepOptions& options, const Device& device, const DataSet& data, Job& job);

}  // namespace convoy::bench
