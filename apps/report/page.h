// The report as one HTML page, and the data that it shows.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "convoy/apps/report/run_record.h"

namespace convoy::report {

/// Returns a page that needs no other file and no network. All text from files is data that the page's script
/// shows as text. `reload_seconds`: how often the page reloads itself; 0: never.
std::string make_page(const std::vector<RunRecord>& runs, int reload_seconds);

/// The maximum number of points of a curve. Longer logs are averaged over equal groups of steps.
inline constexpr std::size_t kMaxPoints = 2000;

/// Returns what the page shows of a run: curves, evaluations, result, configuration, predictions, timeline
/// and warnings.
Json page_data(const RunRecord& run);

/// Returns the step of median length of a trace, for each rank, as {"ms": length, "ranks": [{"name", "spans":
/// [{"row", "name", "begin", "length"}]}]} in milliseconds; null if the trace has no complete step.
Json timeline_of(const Json& trace_events);

/// Returns the bytes in Base64 (RFC 4648), with padding: the form in which a page contains images.
std::string to_base64(std::string_view bytes);

}  // namespace convoy::report

// The files of page/ and D3, which CMake puts into the program.
namespace convoy::report::page_files {

extern const char* const kPage;    // page.html, with the places of the others
extern const char* const kStyle;   // style.css
extern const char* const kScript;  // the .js files, in the order of their use
/// D3 (https://d3js.org), which draws; empty if it was not found when this build was configured.
extern const char* const kD3;
extern const char* const kD3License;

}  // namespace convoy::report::page_files
