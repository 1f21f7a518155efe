// A deadline for blocking calls.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>

namespace convoy::dist {

/// A time before which the deadlines that refer to it do not pass. A thread that knows of progress of the ranks
/// raises it, so that a rank that saves a checkpoint for an hour does not end the waits of the others.
/// Thread-safe.
class DeadlineFloor {
 public:
  using Clock = std::chrono::steady_clock;  // of all deadlines

  /// Raises the time to `at`. Has no effect if it is later already.
  void raise(Clock::time_point at) {
    Clock::rep now = at_.load();
    while (now < at.time_since_epoch().count() &&
           !at_.compare_exchange_weak(now, at.time_since_epoch().count())) {
    }
  }
  /// Returns the time.
  Clock::time_point at() const { return Clock::time_point(Clock::duration(at_.load())); }

 private:
  std::atomic<Clock::rep> at_{0};
};

/// A steady-clock deadline that remembers its timeout for error messages. Threads can share it.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;  // of the deadline

  /// Constructs a deadline `seconds` from now, or at `floor` if that is later. `floor` may be null and must
  /// outlive the deadline.
  explicit Deadline(double seconds, const DeadlineFloor* floor = nullptr)
      : seconds_(seconds), at_(Clock::now() + duration_of(seconds)), floor_(floor) {}

  /// Returns the original timeout in seconds.
  double seconds() const { return seconds_; }
  /// Returns the time of the deadline, which is later at a later call if the floor has been raised.
  Clock::time_point at() const { return floor_ == nullptr ? at_ : std::max(at_, floor_->at() + extra_); }
  /// Returns whether the time is reached.
  bool passed() const { return Clock::now() >= at(); }
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
  Clock::time_point at_;
  const DeadlineFloor* floor_;
  Clock::duration extra_{};  // added to the floor
};

}  // namespace convoy::dist
