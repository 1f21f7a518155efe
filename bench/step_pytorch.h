// --compare-pytorch: the same step in PyTorch, in turn with convoy-train's.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/step_options.h"

namespace convoy::bench {

/// What `python` says its torch is: "2.4.1". UsageError where it cannot be started or has none.
std::string torch_version(const std::string& python);

/// Runs compare_step.py, which must lie in bench/ of a folder above this program, and gives what it measured:
/// all figures of its --json, and "fastest", the PyTorch side that the ratios are to be judged by.
nlohmann::ordered_json compare_with_pytorch(const StepOptions& options);

/// Images a second, memory and ratios of a comparison; of a cold start, seconds.
void print_comparison(const nlohmann::ordered_json& comparison);

}  // namespace convoy::bench
