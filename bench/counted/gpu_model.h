// A model of a GPU, which predicts the time of a launch from what it accesses.
#pragma once

#include <string>

#include "bench/counted/counted_launch.h"

namespace convoy::bench {

/// The properties of a GPU that bound kernels without much arithmetic.
struct GpuModel {
  std::string name;
  int multiprocessors;
  int multiprocessor_threads;      // maximum per multiprocessor
  double memory_bytes_per_second;  // that a copy reaches, not the peak
  double cache_bytes_per_second;   // between the second-level cache and the multiprocessors
  double launch_seconds;           // from the end of one kernel of a graph to the first loads of the next
};

/// An H100 SXM: 132 multiprocessors, 3.35 TB/s at the peak, of which a copy is taken to reach 90 %. The
/// bandwidth of the cache and the time of a launch are estimates.
GpuModel h100_model();

/// Returns the predicted seconds of a launch: its bytes at the bandwidth of the memory, or its sectors at that
/// of the cache if this is more, plus the time of the launch. If there are fewer blocks than multiprocessors,
/// or the last wave of blocks is not full, the GPU is taken to be idle for the missing part. The model knows
/// neither registers, which may allow fewer blocks at a time, nor the latency of dependent loads, nor data
/// that an earlier kernel has left in the cache.
double predicted_seconds(const GpuModel& gpu, const CountedLaunch& launch);

}  // namespace convoy::bench
