// The results of benchmarks: medians over rounds, and the file of --json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

namespace convoy::bench {

/// The median, minimum and maximum of a set of values.
struct Spread {
  double median = 0, lowest = 0, highest = 0;
};

/// Returns the spread of `values`. Throws if there are none.
Spread spread_of(std::vector<double> values);
/// Returns the spread as JSON.
nlohmann::ordered_json to_json(const Spread& spread);

/// Prints a warning to stderr if other processes use the machine (busy_machine_warning()).
void warn_if_busy(const std::string& program);

/// Writes `figures` to `file`; does nothing if `file` is empty.
void write_json(const std::string& file, const nlohmann::ordered_json& figures);

}  // namespace convoy::bench
