#include "bench/overlap/link.h"

#include <algorithm>

namespace convoy::bench {

double Link::ms_for(std::size_t bytes) const {
  const double bus_bytes = static_cast<double>(bytes) * 2 * (ranks - 1) / ranks;
  return latency_us * 1e-3 + bus_bytes / (gb_s * 1e9) * 1e3;
}

std::vector<std::size_t> sent_bytes(const dist::BucketPlan& plan, DType sent) {
  std::vector<std::size_t> bytes;
  std::size_t flags = 0;
  for (const dist::BucketPlan::Bucket& bucket : plan.buckets) {
    bytes.push_back(static_cast<std::size_t>(bucket.numel) * size_of(sent));
    flags += bucket.slices.size();
  }
  bytes.back() += flags * size_of(sent);
  return bytes;
}

Exposure simulate(const StepRecord& record, const dist::BucketPlan& plan, DType sent, const Link& link) {
  const std::vector<std::size_t> bytes = sent_bytes(plan, sent);
  Exposure exposure;
  double now = 0;  // time when the link is free
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const dist::BucketPlan::Slice& slice : plan.buckets[b].slices)
      now = std::max(now, record.gradients[slice.parameter].ready_ms);
    const double took = link.ms_for(bytes[b]);
    exposure.transfers.push_back({.bytes = bytes[b], .begin_ms = now, .end_ms = now + took});
    exposure.comm_ms += took;
    now += took;
  }
  exposure.exposed_ms = std::max(0.0, now - record.backward_ms);
  return exposure;
}

}  // namespace convoy::bench
