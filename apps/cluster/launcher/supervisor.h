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

/// Decides what follows an attempt. A job is restarted after the death of a rank or a host, and after an error that may
/// not occur again, as often as `budget` allows. It is not restarted if all ranks succeeded, after a stop signal, or
/// after an error of the input: invalid flags, damaged data or checkpoints, NaN. A stop signal that only ranks have
/// received is a failure. If the agents of hosts have received it, the job goes on without these hosts, if there are
/// spare hosts, or with `min_ranks`. With `min_ranks`, the failed ranks and hosts are left out, as long as that many
/// remain; otherwise they are used again unless spare hosts replace them. Adds the failures to `pool` and `budget`.
Decision decide(const AttemptResult& result, HostPool& pool, RestartBudget& budget,
                std::optional<std::int64_t> min_ranks);

/// Runs a job with its restarts. Returns the exit code of convoy-launch: that of the rank that failed first,
/// or 128 + the number of the signal that killed it or stopped the job.
int supervise(const LaunchOptions& options, std::vector<HostPlace> hosts,
              const std::vector<HostPlace>& spares);

}  // namespace convoy::launcher
