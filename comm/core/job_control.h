// JobControl: the interface between the ranks of a program and what observes and ends their job.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/comm/core/rank_observer.h"
#include "convoy/comm/core/waits.h"

namespace convoy::dist {

/// Options of a JobControl, whose thread calls the functions.
struct ControlOptions {
  double timeout_seconds = row_of(Wait::collective).seconds;  // of collectives, and of the start
  double io_timeout_seconds = row_of(Wait::storage).seconds;  // of a rank that moves no bytes; 0: none
  double warn_after_seconds = 10;                             // without progress of any rank
  /// Returns the code with which this rank should stop, 0 for none (RankObserver::stop_code()). May be empty.
  std::function<int()> stop_code;
  /// Receives warnings about ranks that hold up the others, on one rank of the job.
  std::function<void(const std::string&)> on_warning;
  /// Receives the reason why the job ends, once, on every rank: the first cause, not its consequences.
  std::function<void(const std::string&)> on_verdict;
};

/// What the ranks of a job tell each other besides their collectives. This class tells nothing: with it,
/// ranks learn of failures by their collectives alone. ControlPlane (comm/cluster/control) overrides
/// everything.
class JobControl : public RankObserver {
 public:
  /// Returns the observer of one communicator of this rank, such as "gradients", or null. It stays valid
  /// after this object is destroyed.
  virtual std::shared_ptr<CollectiveMonitor> monitor(const std::string& /*name*/) { return nullptr; }
  /// Returns the time before which no collective of this rank should time out: other ranks make progress, or
  /// read or write files. May be null.
  virtual std::shared_ptr<const DeadlineFloor> deadline_floor() const { return nullptr; }
  /// Returns a function that records an allocation of this many bytes; may be empty. Any thread may call it,
  /// also after this object is destroyed.
  virtual std::function<void(std::size_t)> allocation_recorder() const { return {}; }
  /// Smaller allocations are too many to be recorded.
  static constexpr std::size_t kRecordedBytes = std::size_t{64} << 20;
  /// Tells all ranks that this one fails. `is_consequence` if it fails because another rank did. Thread-safe.
  virtual void fail(const std::string& /*reason*/, bool /*is_consequence*/) noexcept {}
  /// Returns why the job ends; an empty string if that is not known after `wait_seconds`. Also waits until
  /// the flight recorders of this host have been written, for 2 s at most.
  virtual std::string verdict(double /*wait_seconds*/) { return ""; }
  /// Sets the directory for the flight recorders of all ranks, which are written if the job fails. Not
  /// created before.
  virtual void set_dump_directory(const std::filesystem::path& /*directory*/) {}
  /// Leaves the job in order: the exit of this process is no failure any more.
  virtual void leave() {}
};

}  // namespace convoy::dist
