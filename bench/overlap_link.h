// A link that carries one bucket after the other, and what a training step waits for it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "bench/overlap_record.h"
#include "comm/bucket_plan.h"

namespace convoy::bench {

/// What ranks sum over, as nccl-tests measures it.
struct Link {
  double gb_s = 25;        // busbw: 10^9 bytes a second
  double latency_us = 10;  // of each transfer, whatever its size
  int ranks = 8;

  /// An all-reduce of so many bytes: latency + bytes * 2(n - 1)/n / bandwidth, in milliseconds.
  double ms_for(std::size_t bytes) const;
};

/// Bytes of each bucket as GradientSynchronizer sends it in this type: with the gaps between slices, and a
/// flag a parameter at the end of the last.
std::vector<std::size_t> sent_bytes(const BucketPlan& plan, DType sent);

struct Transfer {
  std::size_t bytes = 0;
  double begin_ms = 0, end_ms = 0;  // after the beginning of backward
};

/// What becomes of a plan's buckets on a link.
struct Exposure {
  std::vector<Transfer> transfers;
  double comm_ms = 0;     // all transfers together
  double exposed_ms = 0;  // from the end of backward to that of the last transfer

  /// Of the transfers' time, the part that backward covers.
  double hidden() const { return std::max(0.0, 1 - exposed_ms / comm_ms); }  // no less by rounding
};

/// The events of an update, as GradientSynchronizer makes them: a bucket goes when its last gradient is ready
/// and the ones before it in the plan have been carried. That launches, casts and sums take time of their own
/// is left out.
Exposure simulate(const StepRecord& record, const BucketPlan& plan, DType sent, const Link& link);

}  // namespace convoy::bench
