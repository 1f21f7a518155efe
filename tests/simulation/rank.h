// The program of a simulated rank: the job of apps/ranks, with the collectives and the phases of a training.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "tests/simulation/machine.h"
#include "tests/simulation/schedule.h"

namespace simulation {

/// What a rank has done, for the checks after the simulation.
struct RankRecord {
  Process* process = nullptr;
  std::string error;             // with which it has ended; empty: none
  std::string wrong;             // a result that was wrong, or something that is left; empty: nothing
  bool has_joined = false;       // the control plane watches it
  bool has_contributed = false;  // to everything: it has entered the barrier at the end
  bool has_regrouped = false;
  std::int64_t stop_step = -1;  // at which the ranks have stopped because of a signal
  int exit_code = -1;           // -1: it has not ended by itself
  Time last_progress = 0;
};

/// Runs the program in a coroutine of the rank's process, and ends the process.
void run_rank(const Schedule& schedule, RankRecord& record);

}  // namespace simulation
