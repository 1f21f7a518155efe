// What convoy-bench-step says: a table for people and JSON for programs.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "apps/job.h"
#include "bench/spread.h"
#include "bench/step_measure.h"

namespace convoy::bench {

/// What every figure goes with: step, batch, precision, threads, ranks, versions, machine. hardware: of a GPU
/// (Device::hardware), else empty.
nlohmann::ordered_json about_step(const StepOptions& options, const std::string& hardware,
                                  const std::string& ranks, int world);
nlohmann::ordered_json to_json(const Spread& spread);
/// Rounds, medians, memory and, with --breakdown, the parts in milliseconds and percent.
nlohmann::ordered_json to_json(const StepFigures& figures);

void print_about(const nlohmann::ordered_json& about);
void print_figures(const nlohmann::ordered_json& figures);

/// That the file of --json can be written: found out before anything is measured. OutputError.
void check_writable(const std::string& file);
/// Nothing where `file` is empty.
void write_json(const std::string& file, const nlohmann::ordered_json& figures);

}  // namespace convoy::bench
