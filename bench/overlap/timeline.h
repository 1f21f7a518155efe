// An SVG timeline of backward and the bucket transfers of each plan on each link.
#pragma once

#include <string>
#include <vector>

#include "bench/overlap/report.h"

namespace convoy::bench {

/// Returns the timeline of the rows whose gradients are sent in the type that backward writes. Each link has
/// a panel with its own time axis. Colours distinguish hidden and exposed parts of transfers.
std::string timeline_of(const StepRecord& record, const std::vector<OverlapRow>& rows);

}  // namespace convoy::bench
