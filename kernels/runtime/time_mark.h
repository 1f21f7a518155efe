// Time marks, which measure the phases of a training step on a device.
#pragma once

#include <memory>

#include "kernels/runtime/device.h"

namespace convoy {

/// A point in the work of a stream and the time at which the device last reached it. In a CudaGraph, every
/// replay reaches the mark again and updates its time.
class TimeMark {
 public:
  /// Creates a mark for the streams of `device`.
  explicit TimeMark(const Device& device);
  TimeMark(TimeMark&&) noexcept = default;
  TimeMark& operator=(TimeMark&&) noexcept = default;

  /// Records the mark after all work submitted to the compute stream so far. Does not block the host.
  void record() { record(device_.stream()); }
  /// Records the mark on another stream of the device, such as that of a communicator. Throws UsageError if
  /// the stream is of another kind.
  void record(const Stream& stream);
  /// Returns whether the device has reached the most recently recorded point. Returns true before the first
  /// record(). Must not be called while the recording stream is capturing.
  bool reached() const;
  /// Blocks the calling thread until the mark is reached.
  void wait() const;

  friend double elapsed_ms(const TimeMark& begin, const TimeMark& end);

  /// The device-specific implementation.
  struct Impl {
    virtual ~Impl() = default;
    virtual void record(const Stream& stream) = 0;
    virtual bool reached() const = 0;
    virtual void wait() const = 0;
    virtual double ms_until(const Impl& later) const = 0;  // `later` has the same dynamic type
  };

 private:
  Device device_;
  std::unique_ptr<Impl> impl_;
  bool recorded_ = false;
};

/// Returns the milliseconds between two marks of one device, on any of its streams. Blocks until both are
/// reached. Marks in a CUDA graph must have been replayed. Throws UsageError if a mark was never recorded or
/// if the devices differ.
double elapsed_ms(const TimeMark& begin, const TimeMark& end);

}  // namespace convoy
