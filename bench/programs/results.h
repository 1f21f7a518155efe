// The results of benchmarks: medians over rounds, and the file of --json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace convoy::bench {

/// Returns the "median", "lowest" and "highest" of `values`. Throws if there are none.
nlohmann::ordered_json spread_of(std::vector<double> values);

/// Prints a warning to stderr if other processes use the machine (busy_machine_warning()).
void warn_if_busy(const std::string& program);

/// Writes `figures` to `file`; does nothing if `file` is empty.
void write_json(const std::string& file, const nlohmann::ordered_json& figures);

}  // namespace convoy::bench
