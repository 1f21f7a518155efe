// The logs of runs as a table in CSV.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/report/run_record.h"

namespace convoy::report {

/// Returns a table (RFC 4180) with one record per step, eval and result event: the run's name, the event, its
/// time and the fields of all these events. Fields that an event does not have are empty.
std::string to_csv(const std::vector<RunRecord>& runs);

}  // namespace convoy::report
