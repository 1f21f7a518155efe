// The report as one HTML page.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/report/run_record.h"

namespace convoy::report {

/// Returns a page that needs no other file and no network. All text from files is data that the page's script
/// shows as text. `reload_seconds`: how often the page reloads itself; 0: never.
std::string make_page(const std::vector<RunRecord>& runs, int reload_seconds);

}  // namespace convoy::report
