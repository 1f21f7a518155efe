// A deadline for blocking calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

#include "convoy/comm/core/collective.h"

namespace convoy::dist {

/// Counts the time in which this process could not run: it was stopped by a signal, such as that of Ctrl-Z,
/// or with its machine. Deadlines do not count this time. While an object exists, its thread calls total() at
/// least ten times a second, so a longer pause of all threads is one of the process. Thread-safe.
class Suspension {
 public:
  Suspension() { observe(1); }
  ~Suspension() { observe(-1); }
  Suspension(const Suspension&) = delete;
  Suspension& operator=(const Suspension&) = delete;

  /// Returns the sum of all pauses of more than a second while an object existed.
  static std::chrono::steady_clock::duration total() { return observe(0); }

 private:
  static std::chrono::steady_clock::duration observe(int more_observers);
};

/// A time before which the deadlines that refer to it do not pass. A thread that knows of progress of the
/// ranks raises it, so that a rank that saves a checkpoint for an hour does not end the waits of the others.
/// Thread-safe.
class DeadlineFloor {
 public:
  using Clock = std::chrono::steady_clock;  // of all deadlines

  /// Raises the time to `at`. Has no effect if it is later already.
  void raise(Clock::time_point at) {
    const Clock::rep raised = (at - Suspension::total()).time_since_epoch().count();
    Clock::rep now = at_.load();
    while (now < raised && !at_.compare_exchange_weak(now, raised)) {
    }
  }
  /// Returns the time, later by each suspension of the process since it was raised.
  Clock::time_point at() const {
    return Clock::time_point(Clock::duration(at_.load())) + Suspension::total();
  }

 private:
  std::atomic<Clock::rep> at_{0};  // without suspensions
};

/// The progress within one call that has a deadline, such as data that arrives over a slow link. Thread-safe.
class CallProgress {
 public:
  /// `monitor` observes the progress. It may be null, and must outlive this object.
  explicit CallProgress(CollectiveMonitor* monitor = nullptr) : monitor_(monitor) {}

  /// Reports progress: the deadlines of the call pass no earlier than at `at`.
  void report(DeadlineFloor::Clock::time_point at) {
    floor_.raise(at);
    if (monitor_ != nullptr) monitor_->progressed();
  }
  /// Returns the time before which the deadlines of the call do not pass.
  DeadlineFloor::Clock::time_point at() const { return floor_.at(); }

 private:
  DeadlineFloor floor_;
  CollectiveMonitor* monitor_;
};

/// A steady-clock deadline that remembers its timeout for error messages. Threads can share it.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;  // of the deadline

  /// Constructs a deadline `seconds` from now, or at `floor` if that is later. `progress` receives what
  /// progressed() reports. Both may be null, and must outlive the deadline.
  explicit Deadline(double seconds, const DeadlineFloor* floor = nullptr, CallProgress* progress = nullptr)
      : seconds_(seconds),
        at_(Clock::now() - Suspension::total() + duration_of(seconds)),
        floor_(floor),
        progress_(progress) {}

  /// Returns the original timeout in seconds.
  double seconds() const { return seconds_; }
  /// Returns the time of the deadline, which is later at a later call if the floor has been raised, or if the
  /// process was suspended in between.
  Clock::time_point at() const {
    Clock::time_point at = at_ + Suspension::total();
    if (floor_ != nullptr) at = std::max(at, floor_->at() + extra_);
    if (progress_ != nullptr) at = std::max(at, progress_->at() + extra_);
    return at;
  }
  /// Reports that the call makes progress: its deadlines pass after another whole timeout, at the earliest.
  /// Has no effect without a CallProgress.
  void progressed() const {
    if (progress_ != nullptr) progress_->report(Clock::now() + duration_of(seconds_));
  }
  /// Returns whether the time is reached.
  bool passed() const {
    const Clock::time_point now = Clock::now();  // before at(), which sees a suspension until then
    return now >= at();
  }
  /// Returns the remaining time; zero after the deadline.
  Clock::duration left() const { return std::max(at() - Clock::now(), Clock::duration::zero()); }
  /// Returns a deadline that always passes `seconds` after this one.
  Deadline plus(double seconds) const {
    Deadline later = *this;
    later.at_ += duration_of(seconds);
    later.extra_ += duration_of(seconds);
    return later;
  }

 private:
  static Clock::duration duration_of(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
  }

  double seconds_;
  Clock::time_point at_;  // without suspensions
  const DeadlineFloor* floor_;
  CallProgress* progress_;
  Clock::duration extra_{};  // added to the floors
};

}  // namespace convoy::dist
