// A computer on which two programs are measured, of chapter 23: it is busy for a while, and some measurements are far off.
#pragma once

#include <cstdint>

/// Measures two programs, which take 1 and `ratio`, in turns that the caller chooses. For a third of the 40 measurements, at a
/// time that nothing announces, the computer is busy, and all takes 1.25 times as long. Each measurement is off by up to 2 %,
/// and one in twelve by a lot: another process ran in between.
class Session {
 public:
  Session(double ratio, std::uint32_t seed) : ratio_(ratio), state_(seed * 2654435761u + 12345) {
    for (int i = 0; i < 4; ++i) random();
    busy_from_ = static_cast<int>(random() * 27);
  }

  /// Returns the time of the first or the second program.
  double first() { return measure(1); }
  double second() { return measure(ratio_); }
  int measurements() const { return count_; }

 private:
  double random() {  // from 0 to 1
    state_ = state_ * 1664525u + 1013904223u;
    return (state_ >> 8) / 16777216.0;
  }
  double measure(double time) {
    if (count_ >= busy_from_ && count_ < busy_from_ + 13) time *= 1.25;
    ++count_;
    time *= 0.98 + 0.04 * random();
    return random() * 12 < 1 ? time * (1.5 + random()) : time;
  }

  double ratio_;
  std::uint32_t state_;
  int busy_from_ = 0, count_ = 0;
};
