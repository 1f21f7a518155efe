// Events: points in the work of a stream, to order streams and to measure time, for any kind of device.
#pragma once

#include <memory>

#include "convoy/kernels/runtime/device.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// A point in the work of a stream. Another stream of the same device, or the host, can wait for it. A timed
/// event also has the time at which the device last reached it. A new event counts as reached.
///
/// One thread at a time records an event. Between records, several threads may call reached() and wait().
class Event {
 public:
  /// Creates an event for streams of the same kind, and of the same GPU, as `prototype`. Throws UsageError
  /// for a stream of the meta device.
  explicit Event(const Stream& prototype) : Event(prototype, false) {}
  /// Creates an event for elapsed_ms(). Recorded in a CudaGraph, it is reached in every replay, which updates
  /// its time; other streams cannot wait for it in the capture. Throws UsageError like the constructor.
  static Event timed(const Stream& prototype) { return Event(prototype, true); }
  /// Events can be moved, but not copied. An event that was moved from can only be assigned or destroyed.
  Event(Event&&) noexcept = default;
  /// Moves like the constructor.
  Event& operator=(Event&&) noexcept = default;

  /// Records the event after all work submitted to the stream so far. Does not block. Throws UsageError if
  /// the stream is of another kind.
  void record(const Stream& stream);
  /// Records the event on the stream that the constructor was given.
  void record() { record(prototype_); }
  /// Makes work that is submitted to the stream later start after the event. Blocks only if the stream is an
  /// inline CPU stream. Throws UsageError if the stream is of another kind, and CaptureError if it is
  /// capturing and the event is timed.
  void wait(const Stream& stream) const;

  /// Returns whether the most recently recorded point is reached. Does not block. Must not be called while
  /// the recording stream is capturing.
  bool reached() const;
  /// Blocks the calling thread until the event is reached.
  void wait() const;

  friend double elapsed_ms(const Event& begin, const Event& end);

  /// The device-specific implementation.
  struct Impl {
    virtual ~Impl() = default;
    virtual void record(const Stream& stream) = 0;
    virtual void wait(const Stream& stream) const = 0;
    virtual bool reached() const = 0;
    virtual void wait() const = 0;
    virtual Device device() const = 0;
    virtual double ms_until(const Impl& later) const = 0;  // `later` is of the same device
  };

 private:
  Event(const Stream& prototype, bool timed);
  Stream prototype_;
  std::unique_ptr<Impl> impl_;
  bool timed_;
  bool recorded_ = false;
};

/// Returns the milliseconds between two timed events of one device, on any of its streams. Blocks until both
/// are reached. Events in a CUDA graph must have been replayed. Throws UsageError if an event is not timed or
/// was never recorded, or if the devices differ.
double elapsed_ms(const Event& begin, const Event& end);

}  // namespace convoy
