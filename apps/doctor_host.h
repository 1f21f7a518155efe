// What the system tells of this process and its host.
#pragma once

#include <string>

#include "apps/doctor_facts.h"
#include "comm/environment.h"

namespace convoy::doctor {

/// All that can be known before the ranks meet; nothing of the GPU.
RankFacts examine_host(const Variables& variables);

/// Bytes a second at which this process copies memory, the best of several.
double measure_copy_rate();

/// Cores' worth of time: "400000 100000" of a container's cpu.max is 4; 0 for "max …" and what is no limit.
double parse_cpu_quota(const std::string& text);

/// A list of cores in short: "0-3,8".
std::string text_of_cores(const std::vector<int>& cores);

}  // namespace convoy::doctor
