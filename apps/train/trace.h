// Chrome traces of a run: the profiler ranges and gradient buckets of all ranks in one file.
#pragma once

#include <filesystem>
#include <vector>

#include "convoy/apps/train/train_step.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/parallel/gradient_reducer.h"
#include "convoy/engine/profile/profiler.h"

namespace convoy {

/// Returns the file of --trace; empty if there is none. `options` must be resolved.
std::filesystem::path trace_file(const TrainOptions& options);

/// Sets time 0 of every rank's trace at a common barrier. Collective. `comm` is null with one rank.
void start_trace(Profiler& profiler, dist::Communicator* comm);

/// Adds spans named "bucket 2 (3.1 MB)" to the row "gradients". `origin` is the host time at which the device
/// reached the event that the times are relative to.
void trace_buckets(Profiler& profiler, const std::vector<dist::BucketTime>& times,
                   Profiler::Clock::time_point origin);

/// Adds the gradient buckets of the latest step and, on a GPU, the phases of the step in a row with the
/// device's name. On the CPU, the phases are ranges of the host already. Blocks until the device has
/// completed the step, so a traced run may be slower.
void trace_step(const TrainContext& context, const TrainStep& step, const dist::GradientReducer& reducer);

/// Writes the profiles of all ranks as Chrome trace JSON for Perfetto or chrome://tracing, with one process
/// per rank ("rank 1 on HOST"). Collective; all ranks pass the same `file`, and an empty one writes nothing. Rank 0
/// writes the file, in a directory that is created if necessary, and throws OutputError if that fails. `comm` is null with one rank.
void write_trace(const Profiler& profiler, dist::Communicator* comm, const std::filesystem::path& file);

}  // namespace convoy
