// The flags of convoy-launch, and the hosts of a job.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/flags/command_line.h"
#include "convoy/comm/core/waits.h"

namespace convoy::launcher {

struct LaunchOptions {
  std::vector<std::string> command;
  std::optional<std::int64_t> ranks;
  std::string hosts;
  std::string remote_command;  // empty: srun within a Slurm job, else ssh
  std::string environment;     // names of variables, separated by commas
  std::int64_t max_restarts = 0;
  std::optional<std::int64_t> min_ranks;
  std::string spares;                   // as `hosts`
  double backoff = 1;                   // seconds before the first restart
  std::optional<double> host_cooldown;  // seconds
  double grace = dist::row_of(dist::Wait::grace).seconds;
  double start_timeout = dist::row_of(dist::Wait::start).seconds;
  double host_timeout = dist::row_of(dist::Wait::host).seconds;
  bool prefix = true;
  bool host_agent = false;
};

CommandLine launch_command_line(LaunchOptions& options);

/// A host of a job and the number of its ranks.
struct HostPlace {
  std::string name;
  int ranks = 1;

  friend bool operator==(const HostPlace&, const HostPlace&) = default;
};

/// Returns the hosts of --hosts and --ranks. `hosts` is a list such as "node1:4,node2:4"; without numbers,
/// the ranks are divided evenly, and without a list they are on localhost. Throws UsageError if the list is
/// malformed, names a host twice or one of `others`, or contradicts `ranks`. `flag` is for messages.
std::vector<HostPlace> parse_hosts(const std::string& hosts, std::optional<std::int64_t> ranks,
                                   const char* flag = "--hosts", const std::vector<HostPlace>& others = {});

/// Returns the hosts of the Slurm job that this process is part of, as a list for parse_hosts(); an empty
/// string outside a Slurm job. Calls `scontrol show hostnames`. Throws UsageError if that fails.
std::string slurm_hosts();

/// Returns the number of tasks of the Slurm job, if Slurm tells it.
std::optional<std::int64_t> slurm_tasks();

/// Returns the command that runs `agent`, the command of the agent, on `host`. Words of `remote_command`
/// are separated by spaces; {host} stands for the host.
std::vector<std::string> agent_command(const std::string& remote_command, const std::string& host,
                                       const std::vector<std::string>& agent);

/// Returns whether `host` is a name of this machine.
bool is_this_host(const std::string& host);

/// Returns the path of a program: `name` itself if it has a slash, else the first match in PATH. Throws
/// UsageError if there is none.
std::string find_program(const std::string& name);

}  // namespace convoy::launcher
