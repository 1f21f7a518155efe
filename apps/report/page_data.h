// The data of the report's page.
#pragma once

#include <vector>

#include "convoy/apps/report/run_record.h"

namespace convoy::report {

/// The maximum number of points of a curve. Longer logs are averaged over equal groups of steps.
inline constexpr std::size_t kMaxPoints = 2000;

/// Returns what the page shows of a run: curves, evaluations, result, configuration, predictions, timeline
/// and warnings.
Json page_data(const RunRecord& run);

/// Returns the step of median length of a trace, for each rank, as {"ms": length, "ranks": [{"name", "spans":
/// [{"row", "name", "begin", "length"}]}]} in milliseconds; null if the trace has no complete step.
Json timeline_of(const Json& trace_events);

}  // namespace convoy::report
