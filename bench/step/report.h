// The output of convoy-bench-step: tables and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/step/measure.h"
#include "convoy/apps/ranks/job.h"

namespace convoy::bench {

/// Returns the context of the results: step, batch, precision, threads, ranks, versions and machine.
/// `hardware` is DeviceContext::hardware() of a GPU, and empty on the CPU.
nlohmann::ordered_json about_step(const StepOptions& options, const std::string& hardware,
                                  const std::string& ranks, int world_size);
/// Returns rounds, medians, memory and, with --breakdown, the parts in milliseconds and percent.
nlohmann::ordered_json to_json(const StepFigures& figures);

/// Prints the context to stdout.
void print_about(const nlohmann::ordered_json& about);
/// Prints the results to stdout.
void print_figures(const nlohmann::ordered_json& figures);

}  // namespace convoy::bench
