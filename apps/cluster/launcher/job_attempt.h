// The ranks of a job from their start until all have ended.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/cluster/launcher/child_process.h"
#include "convoy/apps/cluster/launcher/options.h"

namespace convoy::launcher {

/// How a rank has ended. Without a status, the connection to its host was lost.
struct RankEnd {
  int rank = 0;
  std::string host;
  std::optional<ExitStatus> status;
  bool was_late = false;  // the launcher killed it, because it did not end after another rank failed
};
/// Returns "rank 2 on node7 was killed by SIGKILL".
std::string describe(const RankEnd& end);

struct AttemptResult {
  std::vector<RankEnd> ends;               // in the order of time
  std::vector<std::string> missing_hosts;  // could not be reached; no rank was started
  std::vector<std::string> drained_hosts;  // whose agents have received a stop signal: the host ends, perhaps
  int continuations = 0;                   // failures after which the other ranks went on
  int signal = 0;                          // stop signal of convoy-launch itself; 0: none
};

/// Runs all ranks of a job until they have ended: starts an agent on each host, which starts the ranks, and
/// passes on their output and stop signals. If a rank fails, the others have --grace seconds to end.
/// `restarts` is how many restarts preceded this start. The ranks may continue without the failed ones at
/// most `max_continuations` times. Blocks.
AttemptResult run_attempt(const LaunchOptions& options, const std::vector<HostPlace>& hosts, int restarts,
                          int max_continuations);

}  // namespace convoy::launcher
