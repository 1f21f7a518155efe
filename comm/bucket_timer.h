// When the buckets of an update travelled: what an overlap is seen by.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/runtime/time_mark.h"

namespace convoy {

/// One bucket's all-reduce on one rank: from when the communicator's stream could begin it, which includes
/// any waiting for ranks that are behind.
struct BucketTime {
  int number = 0;         // from 1, in the order of the plan, which is that of the launches
  std::size_t bytes = 0;  // sent
  double begin_ms = 0;    // after the origin that was asked for; negative before it
  double end_ms = 0;
};

/// Marks on the communicator's stream. They live as long as the timer, so a WorkGraph may hold them: each
/// replay of an update is timed anew.
class BucketTimer {
 public:
  explicit BucketTimer(const Device& device) : device_(device) {}

  /// Around the collective. Bucket 0 begins an update.
  void begin(std::size_t bucket, std::size_t bytes, const Stream& stream);
  void end(std::size_t bucket, const Stream& stream);

  /// Of the latest update. Waits for it, and for the origin.
  std::vector<BucketTime> times(const TimeMark& origin) const;

 private:
  struct Span {
    explicit Span(const Device& device) : begin(device), end(device) {}
    std::size_t bytes = 0;
    TimeMark begin, end;
  };
  Device device_;
  std::vector<Span> spans_;  // by bucket
  std::size_t count_ = 0;    // of the latest update
};

}  // namespace convoy
