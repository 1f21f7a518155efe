// The rules that Perfetto and chrome://tracing need of a trace file.
#pragma once

#include <string>
#include <vector>

namespace convoy::testing {

/// Returns what is wrong with a trace in the JSON form of the Trace Event Format
/// (https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU) with complete events,
/// instants, counters and metadata: required fields and their types, names of processes and rows, counters in
/// order of time, and ranges of a row that are nested or separate. Perfetto drops ranges of a row that
/// overlap in part, and shows none before time 0.
std::vector<std::string> problems_of_trace(const std::string& text);

}  // namespace convoy::testing
