// What must hold in every simulation (README.md).
#pragma once

#include <fmt/format.h>

#include <map>
#include <optional>
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
  /// Returns whether all ranks are stopped, and none has ended: no rank waits for them.
  bool are_all_stopped() const;
  void check_wait(const RankRecord& rank, const Waiting& waiting);
  bool must_succeed() const;
  void check_errors(const RankRecord& rank);
  /// Checks whom an error blames.
  void check_culprits(const RankRecord& rank, const Error& error);
  /// Returns whether the observer may take this rank for the cause.
  bool may_blame(const RankRecord& observer, int id, Time at) const;
  std::optional<int> id_of(const RankRecord& rank, const std::string& group, int number) const;
  void check_completion(const RankRecord& rank);
  void check_launcher();
  void check_remains();

  World& world_;
  Result& result_;
  std::set<int> late_;  // ids of ranks whose wait should have ended
};

}  // namespace simulation
