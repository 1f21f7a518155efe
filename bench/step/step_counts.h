// The output of convoy-bench-step --count.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/counted/counted_launch.h"

namespace convoy::bench {

/// Returns a Markdown table of a step: what its kernels, library calls, copies and fills move in total, by
/// name, and the time that a model of an H100 predicts, the longest first; then the predicted step and rate.
/// `images` is the number of images per step.
std::string step_counts_table(const std::vector<CountedLaunch>& launches, std::int64_t images);

/// Returns each launch in order, and the predicted step.
nlohmann::ordered_json step_counts_json(const std::vector<CountedLaunch>& launches);

}  // namespace convoy::bench
