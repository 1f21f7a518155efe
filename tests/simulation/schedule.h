// A schedule of faults: the job of a seed, and what goes wrong in it at which virtual time.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tests/simulation/scheduler.h"

namespace simulation {

/// One fault. `target` is a rank for kill, stop and term, and a host for the others.
struct Fault {
  enum class Kind : std::uint8_t {
    kill,     // SIGKILL
    stop,     // SIGSTOP, and SIGCONT at the end
    freeze,   // all processes of a host are stopped
    suspend,  // all processes of the job are stopped, as by Ctrl-Z
    cut,      // the links of a host carry nothing
    slow,     // the links of a host, and its system calls, are slow
    lose,     // the links of a host lose segments, which are sent again
    flood,    // clients without the secret connect to all ports of a host
    term      // SIGTERM: the job should stop in order
  };
  Kind kind = Kind::kill;
  Time at = 0;
  Time duration = kNever;  // kNever: for good
  int target = 0;
  bool in_collective = false;  // of a kill: in the next collective of the rank
};

/// The job of a seed.
struct Schedule {
  std::uint64_t seed = 0;
  int ranks = 2, hosts = 1;
  double comm_timeout = 5, host_timeout = 3, io_timeout = 20;
  std::string comm = "auto", all_reduce = "auto";
  bool has_secret = true;
  bool is_launched = false;                         // by convoy-launch
  bool may_regroup = false;                         // --min-ranks; only if it is launched
  bool port_is_taken = false;                       // of the first new group
  int max_restarts = 0, min_ranks = 1, spares = 0;  // if it is launched; `spares` are hosts
  double host_cooldown = 1e6;
  int steps = 8;
  std::vector<Fault> faults;

  int host_of(int rank) const { return rank * hosts / ranks; }
};

/// Returns the schedule of a seed. `ranks` is 0, or the number of ranks.
Schedule make_schedule(std::uint64_t seed, int ranks);
/// Returns a line that describes the schedule.
std::string describe(const Schedule& schedule);
std::string describe(const Fault& fault);

}  // namespace simulation
