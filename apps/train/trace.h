// Chrome traces of a run: the profiler ranges and gradient buckets of all ranks in one file.
#pragma once

#include <string>
#include <vector>

#include "comm/core/communicator.h"
#include "comm/parallel/bucket_timer.h"
#include "engine/profile/profiler.h"

namespace convoy {

/// Sets time 0 of every rank's trace at a common barrier. Collective. `comm` is null with one rank.
void start_trace(Profiler& profiler, Communicator* comm);

/// Adds spans named "bucket 2 (3.1 MB)" to the row "gradients". `origin` is the host time at which the device
/// reached the mark that the times are relative to:
///
///     TimeMark now(device);
///     now.record();
///     now.wait();  // blocks: a traced run may be slower
///     trace_buckets(profiler, gradients.bucket_times(now), Profiler::Clock::now());
void trace_buckets(Profiler& profiler, const std::vector<BucketTime>& times,
                   Profiler::Clock::time_point origin);

/// Writes the profiles of all ranks as Chrome trace JSON for Perfetto or chrome://tracing, with one process
/// per rank ("rank 1 on HOST"). Collective; all ranks pass the same `file`, and "" writes nothing. Rank 0
/// writes the file and throws OutputError if that fails. `comm` is null with one rank.
void write_trace(const Profiler& profiler, Communicator* comm, const std::string& file);

}  // namespace convoy
