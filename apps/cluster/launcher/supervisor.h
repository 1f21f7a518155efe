// The decisions of convoy-launch: whether to restart a job after a failure, and on which hosts.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/cluster/launcher/job_attempt.h"
#include "convoy/apps/cluster/launcher/options.h"

namespace convoy::launcher {

/// What follows an attempt.
struct Decision {
  bool restarts = false;
  int exit_code = 0;             // if the job is not restarted
  std::string reason;            // "rank 2 on node7 was killed by SIGKILL"
  std::vector<HostPlace> hosts;  // of the restart
};

/// Decides what follows an attempt on `hosts`. A job is restarted after the death of a rank or a host, and
/// after an error that may not occur again. It is not restarted if all ranks succeeded, after a stop signal,
/// or after an error of the input: invalid flags, damaged data or checkpoints, NaN. A stop signal that only
/// ranks have received is a failure. If the agents of hosts have received it, the job needs `min_ranks` to go
/// on without these hosts. With `min_ranks`, the failed ranks and hosts are left out, as long as that many
/// remain; otherwise a host that cannot be reached counts as a failure only. Adds the failure to `budget`.
Decision decide(const AttemptResult& result, const std::vector<HostPlace>& hosts, RestartBudget& budget,
                std::optional<std::int64_t> min_ranks);

/// Runs a job with its restarts. Returns the exit code of convoy-launch: that of the rank that failed first,
/// or 128 + the number of the signal that killed it or stopped the job.
int supervise(const LaunchOptions& options, std::vector<HostPlace> hosts);

}  // namespace convoy::launcher
