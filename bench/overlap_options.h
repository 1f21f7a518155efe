// The flags of convoy-bench-overlap.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/compute.h"
#include "bench/overlap_link.h"
#include "bench/overlap_step.h"

namespace convoy::bench {

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

CommandLine overlap_command_line(OverlapOptions& options);

/// UsageError for flags that do not go together.
void check_options(const CommandLine& line, const OverlapOptions& options);

/// UsageError for a model or precision that there is not.
StepChoice choice_of(const OverlapOptions& options);
/// One a bandwidth, in their order. UsageError for what is no list of numbers above 0.
std::vector<Link> links_of(const OverlapOptions& options);

}  // namespace convoy::bench
