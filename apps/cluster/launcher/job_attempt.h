// The ranks of a job from their start until all have ended.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "convoy/apps/cluster/launcher/options.h"
#include "convoy/apps/cluster/launcher/restart_policy.h"

namespace convoy::launcher {

struct AttemptResult {
  std::vector<RankEnd> ends;               // in the order of time
  std::vector<std::string> missing_hosts;  // could not be reached; no rank was started
  std::vector<std::string> drained_hosts;  // whose agents have received a stop signal: the host ends, perhaps
  int signal = 0;                          // stop signal of convoy-launch itself; 0: none
  bool grows = false;                      // convoy-launch has stopped the ranks, because more can run
  std::int64_t saved = -1;  // step of the newest checkpoint that a rank has completed; -1: none
};

/// Runs all ranks of a job until they have ended: starts an agent on each host, which starts the ranks, and
/// passes on their output and stop signals. If a rank fails, the others have --grace seconds to end.
/// `restarts` is how many restarts preceded this start. With --min-ranks, the others continue without the failed ones
/// as often as `budget` allows, and if `pool` then has hosts for more ranks, which answer, all ranks are stopped. Adds
/// the failures after which ranks have continued to `pool` and `budget`; the result has the later ones. Blocks.
AttemptResult run_attempt(const LaunchOptions& options, const std::vector<HostPlace>& hosts, int restarts,
                          HostPool& pool, RestartBudget& budget);

}  // namespace convoy::launcher
