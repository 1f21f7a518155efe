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
  std::string reason;            // "rank 2 on node7 was killed by SIGKILL"; empty: no failure
  std::vector<HostPlace> hosts;  // of the restart
};

/// Decides what follows an attempt, and adds its failures to `pool` and `budget`.
/// The job ends if all ranks have succeeded, if convoy-launch has received a stop signal, if a rank had an error that
/// would occur again (invalid flags, damaged data or checkpoints, NaN), or if `budget` is used up.
/// Otherwise it is restarted: after the death of a rank, after the loss of a host, after other errors, and to run on more
/// ranks. A stop signal that only ranks have received is a failure as well.
/// The restart is on the hosts that `pool` chooses. With `min_ranks` these have no failed rank or host, and the job ends
/// if they have fewer ranks. Without, it runs on all its ranks again, if need be on failed hosts, but never on a host whose
/// agent has received a stop signal: if no spare host replaces it, the job ends.
Decision decide(const AttemptResult& result, HostPool& pool, RestartBudget& budget,
                std::optional<std::int64_t> min_ranks);

/// Runs a job with its restarts. Returns the exit code of convoy-launch: that of the rank that failed first,
/// or 128 + the number of the signal that killed it or stopped the job.
int supervise(const LaunchOptions& options, std::vector<HostPlace> hosts,
              const std::vector<HostPlace>& spares);

}  // namespace convoy::launcher
