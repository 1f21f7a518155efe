// The report of convoy-doctor, as text and as JSON.
#pragma once

#include <string>

#include "convoy/apps/cluster/doctor/checks.h"
#include "convoy/apps/cluster/doctor/facts.h"

namespace convoy::doctor {

/// Formats the facts: versions, then each host with its ranks.
std::string format_facts(const Examination& examination);

/// Formats the all-gather of one rank: "rank 2 on node7, shm: all-gather [0 1 2 3]".
std::string format_gather(const CollectiveFacts& facts);

/// Formats the links between hosts and the bandwidths of the all-reduces.
std::string format_exchanges(const Examination& examination);

/// Formats the findings as a numbered list, or a line that says that there are none.
std::string format_findings(const Findings& findings);

/// Returns facts, links, collectives and findings as JSON, with a schema number.
std::string json_of(const Examination& examination, const Findings& findings);

}  // namespace convoy::doctor
