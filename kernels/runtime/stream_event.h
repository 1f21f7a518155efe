// Events that order the streams of a device, for any kind of device.
#pragma once

#include <memory>

#include "kernels/runtime/stream.h"

namespace convoy {

/// An event by which one stream waits for another of the same device. Wraps a CpuEvent or a CudaEvent. A new
/// event counts as reached.
class StreamEvent {
 public:
  /// Creates an event for streams of the same kind, and of the same GPU, as `prototype`.
  explicit StreamEvent(const Stream& prototype);

  /// Records the event after all work submitted to the stream so far. Does not block. Throws UsageError if
  /// the stream is of another kind.
  void record(const Stream& stream);
  /// Makes work that is submitted to the stream later start after the event. Blocks only if the stream is an
  /// inline CPU stream. Throws UsageError if the stream is of another kind.
  void wait(const Stream& stream) const;

  /// Returns whether the event is reached. Does not block.
  bool reached() const;
  /// Blocks the calling thread until the event is reached.
  void wait() const;

  /// The device-specific implementation.
  struct Impl {
    virtual ~Impl() = default;
    virtual void record(const Stream& stream) = 0;
    virtual void wait(const Stream& stream) const = 0;
    virtual bool reached() const = 0;
    virtual void wait() const = 0;
  };

 private:
  std::unique_ptr<Impl> impl_;
};

}  // namespace convoy
