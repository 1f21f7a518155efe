// A simulated link that transfers gradient buckets in sequence, and the time that a training step waits for
// it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "bench/overlap/record.h"
#include "convoy/comm/parallel/bucket_plan.h"

namespace convoy::bench {

/// The interconnect of an all-reduce, in the terms of nccl-tests.
struct Link {
  double gb_s = 25;        // bus bandwidth: 10^9 bytes per second
  double latency_us = 10;  // of each transfer, independent of its size
  int ranks = 8;

  /// Returns the time of an all-reduce of `bytes` in milliseconds: latency + bytes * 2(n - 1)/n / bandwidth.
  double ms_for(std::size_t bytes) const;
};

/// Returns the bytes of each bucket that GradientSynchronizer sends in the type `sent`. They include the gaps
/// between slices and, in the last bucket, one flag per parameter.
std::vector<std::size_t> sent_bytes(const dist::BucketPlan& plan, DType sent);

/// The transfer of one bucket.
struct Transfer {
  std::size_t bytes = 0;
  double begin_ms = 0, end_ms = 0;  // since the start of backward
};

/// The transfers of a plan on a link, and the communication time that backward does not hide.
struct Exposure {
  std::vector<Transfer> transfers;
  double comm_ms = 0;     // sum over all transfers
  double exposed_ms = 0;  // from the end of backward to the end of the last transfer

  /// Returns the fraction of comm_ms that overlaps with backward. The maximum with 0 guards against rounding.
  double hidden() const { return std::max(0.0, 1 - exposed_ms / comm_ms); }
};

/// Simulates the transfers of a step as GradientSynchronizer schedules them. A bucket is transferred when its
/// last gradient is ready and the buckets before it in the plan have been transferred. The time of launches,
/// casts and sums is not modelled.
Exposure simulate(const StepRecord& record, const dist::BucketPlan& plan, DType sent, const Link& link);

}  // namespace convoy::bench
