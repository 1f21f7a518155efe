// One simulation: the ranks of a job with the faults of its schedule, and the invariants that hold in any case.
#pragma once

#include <string>
#include <vector>

#include "tests/simulation/schedule.h"

namespace simulation {

/// What a simulation has found.
struct Result {
  std::vector<std::string> violations;  // of the invariants
  Time end = 0;                         // virtual
  std::uint64_t events = 0, messages = 0, connections = 0;
  int successes = 0, failures = 0;  // ranks that have ended by themselves
  bool has_regrouped = false, has_restarted = false;
  double latest = -1e9;    // seconds between the limit of a wait and its end, at most
  std::string latest_row;  // of the table of waits
};

/// Runs the job of a schedule in this process, which has run no other one since it was forked. Prints each virtual event
/// to stdout with `traces`.
Result simulate(const Schedule& schedule, bool traces);

}  // namespace simulation
