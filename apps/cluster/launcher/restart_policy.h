// What convoy-launch remembers of the failures of a job: how many may follow, and which hosts have failed.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/cluster/launcher/child_process.h"
#include "convoy/apps/cluster/launcher/options.h"

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

/// The hosts of a job and its spare hosts, with a place for each rank that a host can run. The places of ranks that have
/// failed, and all places of a host that is lost, are excluded for a cool-down period.
class HostPool {
 public:
  using Clock = std::chrono::steady_clock;

  /// Makes the pool of a job with as many ranks as `hosts` have together. choose() prefers them to `spares`.
  HostPool(const std::vector<HostPlace>& hosts, const std::vector<HostPlace>& spares,
           double cooldown_seconds);
  int ranks() const { return ranks_; }
  /// Excludes that many places of a host, by default all, until its cool-down period has passed. A period is twice as
  /// long as that of the host's failure before, and at most one hour. Failures within a period do not prolong it.
  void exclude(const std::string& host, int places = kAllPlaces, Clock::time_point now = Clock::now());
  /// Excludes the places of the ranks that were the cause of a failure, and the hosts whose connections were lost.
  void exclude(const std::vector<RankEnd>& ends);
  /// Returns hosts with at most as many ranks as the job has, without excluded places. If they have fewer, and
  /// `may_use_excluded`, adds excluded places.
  std::vector<HostPlace> choose(bool may_use_excluded, Clock::time_point now = Clock::now()) const;

 private:
  static constexpr int kAllPlaces = 1 << 20;  // more than a host has
  struct Entry {
    HostPlace place;
    int excluded = 0;  // places, before `usable_at`
    int periods = 0;   // cool-down periods so far
    Clock::time_point usable_at{};
  };
  std::vector<Entry> entries_;
  int ranks_;
  std::chrono::duration<double> cooldown_;
};

/// Returns the number of ranks on these hosts.
int ranks_of(const std::vector<HostPlace>& hosts);

}  // namespace convoy::launcher
