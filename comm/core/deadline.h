// A deadline for blocking calls.
#pragma once

#include <algorithm>
#include <chrono>

namespace convoy::dist {

/// A steady-clock deadline that remembers its timeout for error messages. Does not change, so threads can
/// share it.
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;  // of the deadline

  /// Constructs a deadline `seconds` from now.
  explicit Deadline(double seconds)
      : seconds_(seconds),
        at_(Clock::now() +
            std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds))) {}

  /// Returns the original timeout in seconds.
  double seconds() const { return seconds_; }
  /// Returns the time of the deadline.
  Clock::time_point at() const { return at_; }
  /// Returns whether the time is reached.
  bool passed() const { return Clock::now() >= at_; }
  /// Returns the remaining time; zero after the deadline.
  Clock::duration left() const { return std::max(at_ - Clock::now(), Clock::duration::zero()); }

 private:
  double seconds_;
  Clock::time_point at_;
};

}  // namespace convoy::dist
