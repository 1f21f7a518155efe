// Backward and each plan's buckets on each link, as a picture.
#pragma once

#include <string>
#include <vector>

#include "bench/overlap_report.h"

namespace convoy::bench {

/// SVG of the gradients as backward writes them, a panel a link, each with an axis of its own: what of a
/// transfer lies within backward, and what is exposed.
std::string timeline_of(const StepRecord& record, const std::vector<OverlapRow>& rows);

}  // namespace convoy::bench
