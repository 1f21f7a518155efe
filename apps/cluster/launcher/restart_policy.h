// What convoy-launch remembers of the failures of a job: how many may follow.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/cluster/launcher/child_process.h"

namespace convoy::launcher {

inline constexpr int kSignalBase = 128;  // exit codes above it mean a signal, as in a shell

/// How a rank has ended. Without a status, the connection to its host was lost.
struct RankEnd {
  int rank = 0;
  std::string host;
  std::optional<ExitStatus> status;
  bool was_late = false;   // the launcher killed it, because it did not end after another rank failed
  std::int64_t step = -1;  // number of training steps that it had completed; -1: unknown

  /// Returns whether the rank has stopped after a stop signal.
  bool has_stopped() const;
  /// Returns whether the rank ended because of another one, or because the launcher killed it.
  bool is_consequence() const;
};
/// Returns "rank 2 on node7 was killed by SIGKILL".
std::string describe(const RankEnd& end);
/// Returns the first of the ends that is no consequence, or the first one; null without ends.
const RankEnd* cause_of(const std::vector<RankEnd>& ends);

/// The number of failures after which a job goes on (--max-restarts).
class RestartBudget {
 public:
  explicit RestartBudget(std::int64_t maximum) : maximum_(maximum) {}
  /// Adds a failure. `saved`: the step of the newest checkpoint of the job; -1: none. If it is newer than at the failure
  /// before, the count starts again.
  void add(const RankEnd* cause, std::int64_t saved);
  /// Returns the number of failures since the newest checkpoint.
  std::int64_t count() const { return count_; }
  bool is_used_up() const { return count_ > maximum_ || is_early(); }
  /// Returns why a job ends before the maximum: "; the job ends after …"; otherwise an empty string.
  std::string early_end() const;

 private:
  /// Returns whether three failures in a row were in the same step.
  bool is_early() const { return in_step_ >= 3; }

  std::int64_t maximum_, count_ = 0;
  std::int64_t saved_ = -1, step_ = -1;  // at the latest failure
  int in_step_ = 0;                      // failures in a row in this step
};

}  // namespace convoy::launcher
