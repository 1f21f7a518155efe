// Until when to wait for others.
#pragma once

#include <algorithm>
#include <chrono>

namespace convoy {

/// A point of a clock that nobody sets back, and how long it was away at first, for messages.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(double seconds)
      : seconds_(seconds),
        at_(Clock::now() +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  double seconds() const { return seconds_; }
  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }
  /// Zero once it has passed.
  Clock::duration left() const { return std::max(at_ - Clock::now(), Clock::duration::zero()); }

 private:
  double seconds_;
  Clock::time_point at_;
};

}  // namespace convoy
