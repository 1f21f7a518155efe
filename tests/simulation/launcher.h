// A stand-in for convoy-launch and its agents, which makes new groups of the ranks that wait for one.
#pragma once

#include <string>
#include <vector>

#include "tests/simulation/rank.h"

namespace simulation {

/// Reads the requests of the ranks and answers them, as convoy-launch does with --min-ranks 1.
class Launcher {
 public:
  /// Adds a process on a host of its own, and a link to each rank. The references must outlive the launcher.
  Launcher(const Schedule& schedule, std::vector<RankRecord>& ranks);
  /// Returns the descriptor with which a rank reaches its agent.
  int descriptor_of(int rank) const { return of_ranks_[static_cast<std::size_t>(rank)]; }
  /// Serves until all ranks have ended; in a coroutine of the process.
  void run();
  Process* process() const { return process_; }

 private:
  void read_requests();
  void answer();

  const Schedule& schedule_;
  std::vector<RankRecord>& ranks_;
  Process* process_;
  std::vector<int> own_, of_ranks_;
  std::vector<std::string> received_;
  std::vector<std::int64_t> steps_;  // that a rank which waits has completed; -1: it does not wait
  Time first_request_ = kNever;
  int groups_ = 0;
};

}  // namespace simulation
