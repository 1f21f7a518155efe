// The comparison of --compare-pytorch: the same step in PyTorch and convoy-train, in alternation.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/step/options.h"

namespace convoy::bench {

/// Returns the version of torch in the interpreter `python`, such as "2.4.1". Throws UsageError if the
/// interpreter cannot be started or has no torch.
std::string torch_version(const std::string& python);

/// Runs compare_step.py and blocks until it ends. The script must be in bench/python/ of a directory above
/// this program. Returns the contents of its --json, and adds "fastest": the PyTorch configuration with the
/// highest throughput, to which ratios refer. Throws an error if the script fails or PyTorch has no result.
nlohmann::ordered_json compare_with_pytorch(const StepOptions& options);

/// Prints the throughput, memory and ratios of a comparison, or the seconds of a cold start.
void print_comparison(const nlohmann::ordered_json& comparison);

}  // namespace convoy::bench
