// Facts about this process and its host.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/cluster/doctor/facts.h"
#include "convoy/comm/bootstrap/environment.h"

namespace convoy::doctor {

/// Collects all facts that need no rendezvous, except those about GPUs.
RankFacts examine_host(const dist::Variables& variables);

/// Returns the memory copy rate of this process in B/s: the maximum of several copies.
double measure_copy_rate();

/// Parses the cpu.max of a control group and returns the CPU quota in cores: 4 for "400000 100000", 0 for no
/// limit.
double parse_cpu_quota(const std::string& text);

/// Formats a sorted list of cores as ranges: "0-3,8".
std::string format_cores(const std::vector<int>& cores);

}  // namespace convoy::doctor
