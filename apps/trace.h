// The timeline of a run: every rank's ranges in one file, and when the buckets of gradients travelled.
#pragma once

#include <string>
#include <vector>

#include "comm/bucket_timer.h"
#include "comm/communicator.h"
#include "engine/profile/profiler.h"

namespace convoy {

/// Time 0 of every rank's trace, at a common barrier. Every rank calls it. comm: null for one rank.
void start_trace(Profiler& profiler, Communicator* comm);

/// Spans "bucket 2 (3.1 MB)" on a row "gradients". origin: when the mark was reached that the times are given
/// from:
///
///     TimeMark now(device);
///     now.record();
///     now.wait();  // a trace is there to be looked at, not to be fast
///     trace_buckets(profiler, gradients.bucket_times(now), Profiler::Clock::now());
void trace_buckets(Profiler& profiler, const std::vector<BucketTime>& times,
                   Profiler::Clock::time_point origin);

/// Rank 0 writes what all ranks' profilers have recorded, a process a rank ("rank 1 on HOST"), as Chrome
/// trace JSON for Perfetto or chrome://tracing. Every rank calls it, with the same file; "" writes none.
/// comm: null for one rank. OutputError on rank 0.
void write_trace(const Profiler& profiler, Communicator* comm, const std::string& file);

}  // namespace convoy
