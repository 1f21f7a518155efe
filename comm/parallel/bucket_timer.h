// Timed events around the collectives of gradient buckets, from which the overlap with backward is measured.
#pragma once

#include <cstddef>
#include <vector>

#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy::dist {

/// The span of one bucket's collective on one rank. It begins when the communicator's stream could start the
/// collective, so it includes the wait for ranks that are late.
struct BucketTime {
  int number = 0;         // from 1, in launch order
  std::size_t bytes = 0;  // size of the sent tensor
  double begin_ms = 0;    // relative to the origin passed to times(); negative if before it
  double end_ms = 0;      // relative to the same origin
};

/// A recorder of time marks on the communicator's stream. The marks exist as long as the timer, so a
/// CudaGraph may capture them; each replay of a captured step then measures the buckets again. Not
/// thread-safe.
class BucketTimer {
 public:
  /// Creates a timer for streams of `device`.
  explicit BucketTimer(const DeviceContext& device) : device_(device) {}

  /// Records the begin of bucket `bucket` on `stream`. Bucket 0 begins a new step.
  void begin(std::size_t bucket, std::size_t bytes, const Stream& stream);
  /// Records the end of bucket `bucket` on `stream`.
  void end(std::size_t bucket, const Stream& stream);

  /// Returns the times of the latest step relative to `origin`. Blocks until its marks and `origin` are
  /// reached.
  std::vector<BucketTime> times(const Event& origin) const;

 private:
  struct Span {
    explicit Span(const DeviceContext& device)
        : begin(Event::timed(device.stream())), end(Event::timed(device.stream())) {}
    std::size_t bytes = 0;
    Event begin, end;
  };
  DeviceContext device_;
  std::vector<Span> spans_;  // by bucket
  std::size_t count_ = 0;    // buckets begun in the latest step
};

}  // namespace convoy::dist
