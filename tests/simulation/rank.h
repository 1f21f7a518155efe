// The program of a simulated rank: the job of apps/ranks, with the collectives and the phases of a training.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/core/waits.h"
#include "tests/simulation/machine.h"
#include "tests/simulation/schedule.h"

namespace simulation {

using convoy::dist::Wait;

inline constexpr int kStopped = 128 + 15;  // exit code after SIGTERM

/// What a rank has done, for the checks.
struct RankRecord {
  /// A wait that has not ended.
  struct Waiting {
    Wait row;        // of the table of waits
    double seconds;  // its limit
    Time begin;
  };
  /// Why a rank has given up.
  struct Error {
    std::string group;    // that has failed
    std::string text;     // as the rank prints it
    std::string verdict;  // of the control plane; empty: none
    Time at = 0;
  };

  int id = 0;       // its rank in the first group of its attempt
  int attempt = 0;  // how many restarts preceded its start
  Host* host = nullptr;
  Process* process = nullptr;          // null: it has not started
  std::int64_t step = 0;               // number of completed steps
  std::int64_t* checkpoint = nullptr;  // World::checkpoint
  std::vector<Error> errors;           // with which it has left a group, or ended
  std::string wrong;                   // a result that was wrong, or something that is left; empty: nothing
  std::string group;                   // the name of the present group
  int group_size = 0;                  // number of its ranks
  bool has_joined = false;             // the control plane watches it
  bool has_contributed = false;        // to everything: it has entered the barrier at the end
  bool has_regrouped = false;
  std::int64_t stop_step = -1;  // at which the ranks have stopped because of a signal
  int exit_code = -1;           // -1: it has not ended by itself
  Time last_progress = 0;
  std::vector<Waiting> waits;  // the innermost one last
  std::function<void(const RankRecord&, const Waiting&)> on_end_of_wait;
  std::function<void()> on_next_collective;  // called once; may be empty
};

/// A wait of the rank that the current coroutine belongs to, as long as the object exists.
class WaitScope {
 public:
  WaitScope(Wait row, double seconds);
  ~WaitScope();
  WaitScope(const WaitScope&) = delete;
  WaitScope& operator=(const WaitScope&) = delete;

 private:
  RankRecord& record_;
};

/// Runs the program in a coroutine of the rank's process, and ends the process.
void run_rank(const Schedule& schedule, RankRecord& record);

}  // namespace simulation
