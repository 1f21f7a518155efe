// What must hold in every simulation (README.md).
#pragma once

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/simulation/simulation.h"
#include "tests/simulation/world.h"

namespace simulation {

/// Checks waits while the job runs, and everything else at its end.
class Checks {
 public:
  /// The references must outlive the object.
  Checks(World& world, Result& result);

  /// Looks for waits that should have ended. Returns whether one of them is so late that it has no end.
  bool find_endless_waits();
  /// Returns whether nothing but what is stopped or cut off for good remains.
  bool is_over() const;
  /// Checks what the job has done.
  void check_end();

 private:
  using Error = RankRecord::Error;
  using Waiting = RankRecord::Waiting;
  template <class... Values>
  void violate(fmt::format_string<Values...> format, Values&&... values) {
    result_.violations.push_back(fmt::format(format, std::forward<Values>(values)...));
  }

  /// Returns by when a wait of a rank must have ended, without what is allowed for its end in order.
  Time limit_of(const RankRecord& rank, const Waiting& waiting) const;
  /// Returns whether all ranks of the newest group of convoy-launch are stopped. Without it, or before it has one: whether all
  /// ranks of the newest attempt that have not ended are stopped, and nothing waits for them: none has ended, or the others
  /// have finished and these have done their part.
  bool are_all_stopped() const;
  void check_wait(const RankRecord& rank, const Waiting& waiting);
  bool must_succeed() const;
  /// Returns whether one fault that is over, or has killed or stopped a rank, leaves convoy-launch a way to complete the job.
  bool must_complete() const;
  void check_errors(const RankRecord& rank);
  /// Checks whom an error blames.
  void check_culprits(const RankRecord& rank, const Error& error);
  /// Returns whether the observer may take this rank for the cause.
  bool may_blame(const RankRecord& observer, const RankRecord& blamed, Time at) const;
  /// Returns the rank of this number in a group; null if there is none.
  const RankRecord* find_member(const RankRecord& rank, const std::string& group, int number) const;
  void check_completion(const RankRecord& rank);
  void check_launcher();
  /// Checks the exit code of convoy-launch and what it says of a failure.
  void check_failure_of_launcher();
  /// Checks that the ranks have begun at most as often without a newer checkpoint as --max-restarts allows, and not less often
  /// if convoy-launch gives up.
  void check_budget();
  void check_remains();

  World& world_;
  Result& result_;
};

}  // namespace simulation
