// A point in a stream's work, on whichever device.
#pragma once

#include <memory>

#include "kernels/runtime/stream.h"

namespace convoy {

/// For a stream to wait for another of the same device: what a CpuEvent is between CPU streams, and a
/// CudaEvent between those of one GPU. Starts as reached.
class StreamEvent {
 public:
  /// For streams of this one's kind (and GPU).
  explicit StreamEvent(const Stream& of);

  /// Here, after all work on the stream so far.
  void record(const Stream& stream);
  /// Work submitted to the stream later starts after the event. On a CPU stream that works inline: blocks.
  void wait(const Stream& stream) const;

  bool reached() const;
  void wait() const;  // blocks the calling thread

  /// What a kind of device makes of it.
  struct Point {
    virtual ~Point() = default;
    virtual void record(const Stream& stream) = 0;
    virtual void wait(const Stream& stream) const = 0;
    virtual bool reached() const = 0;
    virtual void wait() const = 0;
  };

 private:
  std::unique_ptr<Point> point_;
};

}  // namespace convoy
