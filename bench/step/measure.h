// Measures whole training steps.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "bench/counted/counted_launch.h"
#include "bench/step/options.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/apps/train/trainer.h"

namespace convoy::bench {

/// The results of the measured rounds on rank 0.
struct StepFigures {
  std::vector<double> step_ms;  // by round
  std::vector<double> images_per_second;
  /// Peak memory in use of the device's allocator, including images that are stored on the device.
  std::size_t peak_bytes = 0;
  /// Requests of the allocator to the system or driver after the warm-up: 0 in a steady state.
  std::uint64_t allocations = 0;
  /// With --breakdown: mean over the measured steps.
  std::optional<training::StepParts> parts;
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

}  // namespace convoy::bench
