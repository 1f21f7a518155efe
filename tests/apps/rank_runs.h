// Trainings by several ranks, each way that ranks can be connected.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tests/apps/programs.h"
#include "tests/support/mpirun.h"

namespace convoy::testing {

/// What a training came to, in numbers that two trainings can be compared by.
struct Outcome {
  std::vector<double> losses;  // of each step
  double test_loss = 0, test_accuracy = 0;
  std::int64_t test_count = 0;
  std::int64_t samples = 0;
  std::string hash;  // of parameters and buffers
};

/// A training on so many ranks: convoy-train under mpirun ("mpi", "shm"), as processes started by hand that
/// meet at a TCP port ("gloo"), or as one process with --devices ("thread"). One rank: alone, without any of
/// that. flags: beside those of Workshop::train_arguments. A training that fails fails the test.
Outcome train_on(const Workshop& workshop, const std::string& out, int ranks, const std::string& comm,
                 const Arguments& flags);

/// The step events that a run has logged so far.
std::size_t steps_of(const Workshop& workshop, const std::string& out);
/// Until there are so many; a minute without them fails the test.
void wait_for_step(const Workshop& workshop, const std::string& out, std::size_t step);

using Environment = std::map<std::string, std::string>;

/// A program under mpirun, which may run here as root and with more ranks than cores.
ProcessResult run_by_mpi(int ranks, const Arguments& program);
Arguments mpirun(int ranks, const Arguments& program);

/// Of one of several processes that meet at a port of this machine.
Environment rank_environment(int rank, int world, int port);
/// The same program once a rank, at the same time, without mpirun; results by rank.
std::vector<ProcessResult> run_by_hand(int ranks, const Arguments& program);

}  // namespace convoy::testing
