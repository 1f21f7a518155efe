// The flags of convoy-bench-overlap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/overlap/link.h"
#include "bench/overlap/step.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/compute.h"

namespace convoy::bench {

/// The values of the flags, as given.
struct OverlapOptions {
  std::string model = "resnet18", precision = "fp32";
  std::int64_t batch_size = 128, image_size = 32, steps = 5;
  ComputeOptions compute;
  std::string record, replay;
  std::optional<double> scale_to;
  std::string bandwidth = "475,25,1";
  double latency_us = 10;
  std::int64_t ranks = 8;
  std::int64_t real = 0;
  std::string json, timeline;
};

/// Returns the command line that parses into `options`, which must outlive it.
CommandLine overlap_command_line(OverlapOptions& options);

/// Throws UsageError if flags contradict each other.
void check_options(const CommandLine& line, const OverlapOptions& options);

/// Returns the step that the flags select. Throws UsageError for an unknown precision.
StepChoice choice_of(const OverlapOptions& options);
/// Returns one link per bandwidth, in the order given. Throws UsageError if --bandwidth is not a list of
/// positive numbers.
std::vector<Link> links_of(const OverlapOptions& options);

}  // namespace convoy::bench
