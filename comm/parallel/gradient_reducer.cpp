#include "convoy/comm/parallel/gradient_reducer.h"

namespace convoy::dist {

void BucketTimer::begin(std::size_t bucket, std::size_t bytes, const Stream& stream) {
  if (bucket == spans_.size()) spans_.emplace_back(device_);
  spans_[bucket].bytes = bytes;
  spans_[bucket].begin.record(stream);
  count_ = bucket + 1;
}

void BucketTimer::end(std::size_t bucket, const Stream& stream) { spans_[bucket].end.record(stream); }

std::vector<BucketTime> BucketTimer::times(const Event& origin) const {
  std::vector<BucketTime> times;
  for (std::size_t bucket = 0; bucket < count_; ++bucket) {
    const Span& span = spans_[bucket];
    times.push_back({.number = static_cast<int>(bucket) + 1,
                     .bytes = span.bytes,
                     .begin_ms = -elapsed_ms(span.begin, origin),
                     .end_ms = -elapsed_ms(span.end, origin)});
  }
  return times;
}

}  // namespace convoy::dist
