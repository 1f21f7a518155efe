// When a device's work came to a point: what phases of a step are timed by.
#pragma once

#include <memory>

#include "kernels/runtime/device.h"

namespace convoy {

/// A point of a stream's work, and the time when the device last came to it. In a WorkGraph each replay comes
/// to it anew, and times itself.
class TimeMark {
 public:
  explicit TimeMark(const Device& device);
  TimeMark(TimeMark&&) noexcept = default;
  TimeMark& operator=(TimeMark&&) noexcept = default;

  /// Here, after all work on the compute stream so far. Never blocks the host.
  void record() { record(device_.stream()); }
  /// The same on another stream of the device: a communicator's. UsageError for one of another kind.
  void record(const Stream& stream);
  /// Whether the device has come to the point where the mark was recorded last; true before the first time.
  /// Not while the work that records it is being captured.
  bool reached() const;
  void wait() const;  // until reached; blocks the calling thread

  /// Between two marks of one device, on any of its streams, that were recorded (and replayed, where a graph
  /// holds them). Waits for both.
  friend double elapsed_ms(const TimeMark& begin, const TimeMark& end);

  /// What a kind of device makes of it.
  struct Point {
    virtual ~Point() = default;
    virtual void record(const Stream& stream) = 0;
    virtual bool reached() const = 0;
    virtual void wait() const = 0;
    virtual double ms_until(const Point& later) const = 0;  // of the same kind
  };

 private:
  Device device_;
  std::unique_ptr<Point> point_;
  bool recorded_ = false;
};

double elapsed_ms(const TimeMark& begin, const TimeMark& end);

}  // namespace convoy
