// convoy-launch: starts the ranks of a program on several hosts, and restarts them after a failure.
#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/cluster/launcher/options.h"
#include "convoy/apps/cluster/launcher/supervisor.h"
#include "convoy/apps/common/output_queue.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/kernels/base/check.h"

namespace convoy::launcher {
namespace {

int run(int argc, char** argv) {
  LaunchOptions options;
  CommandLine line = launch_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  if (options.host_agent) return run_host_agent();
  check(!options.command.empty(), "no program to start; expected convoy-launch [FLAG]... PROGRAM [FLAG]...");
  check(!options.min_ranks || options.max_restarts > 0,
        "--min-ranks {}: needs --max-restarts, expected at least 1", options.min_ranks.value_or(0));
  check(options.spares.empty() || options.max_restarts > 0,
        "--spares {}: needs --max-restarts, expected at least 1", options.spares);
  check(!options.host_cooldown || options.min_ranks || !options.spares.empty(),
        "--host-cooldown {:g}: needs --spares or --min-ranks, without which no host is left out",
        options.host_cooldown.value_or(0));
  if (options.hosts.empty()) {
    options.hosts = slurm_hosts();
    if (!options.ranks && !options.hosts.empty()) options.ranks = slurm_tasks();
  }
  const std::vector<HostPlace> hosts = parse_hosts(options.hosts, options.ranks);
  std::vector<HostPlace> spares;
  if (!options.spares.empty()) spares = parse_hosts(options.spares, {}, "--spares", hosts);
  const int ranks = ranks_of(hosts);
  check(options.min_ranks.value_or(1) <= ranks, "--min-ranks {}: more than the {} ranks of the job",
        options.min_ranks.value_or(1), ranks);
  find_program(options.command.front());
  // A terminal that does not read delays neither the ranks nor a restart: no line of a rank waits, also on stderr.
  QueuedStream output(stdout), error(stderr);
  return supervise(options, hosts, spares);
}

}  // namespace
}  // namespace convoy::launcher

int main(int argc, char** argv) {
  return convoy::run_main("convoy-launch", [&] { return convoy::launcher::run(argc, argv); });
}
