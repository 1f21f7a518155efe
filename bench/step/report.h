// The output of convoy-bench-step: tables and JSON.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/step/measure.h"
#include "bench/step/spread.h"
#include "convoy/apps/ranks/job.h"

namespace convoy::bench {

/// Returns the context of the results: step, batch, precision, threads, ranks, versions and machine.
/// `hardware` is DeviceContext::hardware() of a GPU, and empty on the CPU.
nlohmann::ordered_json about_step(const StepOptions& options, const std::string& hardware,
                                  const std::string& ranks, int world_size);
/// Returns the spread as JSON.
nlohmann::ordered_json to_json(const Spread& spread);
/// Returns rounds, medians, memory and, with --breakdown, the parts in milliseconds and percent.
nlohmann::ordered_json to_json(const StepFigures& figures);

/// Prints the context to stdout.
void print_about(const nlohmann::ordered_json& about);
/// Prints the results to stdout.
void print_figures(const nlohmann::ordered_json& figures);

/// Prints a warning to stderr if other processes use the machine (doctor::busy_machine_warning()).
void warn_if_busy(const std::string& program);

/// Throws OutputError if the file of --json cannot be written. Called before anything is measured.
void check_writable(const std::string& file);
/// Writes `figures` to `file`; does nothing if `file` is empty.
void write_json(const std::string& file, const nlohmann::ordered_json& figures);

}  // namespace convoy::bench
