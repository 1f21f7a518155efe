// A training of several ranks as processes, to which tests do harm.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/types.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/apps/fault_record.h"
#include "tests/apps/job_traces.h"
#include "tests/apps/rank_runs.h"

namespace convoy::testing {

/// Fixture of a job whose output directory is "run". After each test, expects that nothing of the job is
/// left.
class RankJob : public ::testing::Test {
 protected:
  /// Starts the ranks: with "mpi" under mpirun, else each as a child of this process, whose exit codes and
  /// messages are its own.
  void start(int ranks, const std::string& comm, const Arguments& flags);
  /// Starts `command` as rank `rank`.
  void start_rank(int rank, int ranks, int port, const Arguments& command,
                  const ProcessOptions& options = {});
  /// Blocks until the log has `step` steps, and observes the traces of the job.
  void wait_until_step(std::size_t step);
  /// Returns the process id of a rank.
  pid_t id_of(int rank) const;
  /// Returns what all processes have written to stderr so far.
  std::string errors() const;
  /// Blocks until errors() contains `text`. Fails the test after half a minute.
  void wait_for_error(const std::string& text) const;
  /// Waits for all processes except that of the rank `but`, and returns their results by rank. Under mpirun,
  /// there is one result.
  std::vector<ProcessResult> wait(int but = -1);
  /// Returns the hash of the final parameters of a run.
  std::string hash_of(const std::string& out) const;

  void TearDown() override;

  Workshop workshop;
  JobTraces traces{workshop.path("run")};
  std::vector<std::unique_ptr<Process>> processes;

 private:
  TempDirectory session_;  // of mpirun
};

/// Returns the numbers of ranks with which tests run. Programs define it: quick ones with 2 ranks, those
/// labelled `soak` with more.
std::vector<int> world_sizes();

}  // namespace convoy::testing
