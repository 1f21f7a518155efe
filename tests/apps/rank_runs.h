// Trainings on several ranks with each communication backend.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/apps/programs.h"
#include "tests/testing/support/mpirun.h"

namespace convoy::testing {

/// The results of a training that tests compare.
struct Outcome {
  std::vector<double> losses;  // one per step
  double test_loss = 0, test_accuracy = 0;
  std::int64_t test_count = 0;
  std::int64_t samples = 0;
  std::string hash;  // of parameters and buffers
};

/// Trains on `ranks` ranks: under mpirun ("mpi", "shm"), as processes with a TCP rendezvous ("tcp"), or as
/// one process with --devices ("thread"). With one rank, `comm` is ignored. `flags` are added to those of
/// Workshop::train_arguments(). A training that fails fails the test.
Outcome train_on(const Workshop& workshop, const std::string& out, int ranks, const std::string& comm,
                 const Arguments& flags);

/// Returns the number of step events that a run has logged so far.
std::size_t steps_of(const Workshop& workshop, const std::string& out);
/// Blocks until steps_of() reaches `step`. Fails the test after one minute.
void wait_for_step(const Workshop& workshop, const std::string& out, std::size_t step);

using Environment = std::map<std::string, std::string>;

/// Runs a program under mpirun, as root and with more ranks than cores if necessary.
ProcessResult run_by_mpi(int ranks, const Arguments& program);
/// Returns the arguments of mpirun for a program.
Arguments mpirun(int ranks, const Arguments& program);

/// Returns the environment of one rank for a rendezvous at a port of this machine.
Environment rank_environment(int rank, int world_size, int port);
/// Runs a program once per rank, concurrently and without mpirun. Returns the results by rank.
std::vector<ProcessResult> run_by_hand(int ranks, const Arguments& program);

}  // namespace convoy::testing
