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
  std::vector<std::string> missing_hosts;  // that could not be reached; no rank was started
  std::vector<std::string>
      drained_hosts;        // whose agents have received a stop signal, as before a machine is taken away
  int signal = 0;           // stop signal that convoy-launch has received; 0: none
  bool grows = false;       // convoy-launch has stopped the ranks, to start them again with more
  std::int64_t saved = -1;  // step of the newest checkpoint that a rank has completed; -1: none
};

/// Runs all ranks of a job until they have ended: starts an agent on each host, which starts the ranks, and
/// passes on their output and stop signals. `restarts` is how many restarts preceded this start. Blocks.
/// If a rank fails, the others have --grace seconds to end. With --min-ranks they continue without it instead, as often
/// as `budget` allows. Once `pool` then has hosts for more ranks, and these hosts answer, stops all ranks (`grows`).
/// Adds the failures after which ranks have continued to `pool` and `budget`. The result has the others, for decide().
AttemptResult run_attempt(const LaunchOptions& options, const std::vector<HostPlace>& hosts, int restarts,
                          HostPool& pool, RestartBudget& budget);

}  // namespace convoy::launcher
