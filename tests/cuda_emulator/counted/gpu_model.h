// A model of a GPU, which predicts the time of a launch from what it accesses.
#pragma once

#include <string>

#include "tests/cuda_emulator/counted/counted_launch.h"

namespace convoy::bench {

/// The properties of a GPU that bound the time of its work.
struct GpuModel {
  std::string name;
  int multiprocessors;
  int multiprocessor_threads;      // maximum per multiprocessor
  double memory_bytes_per_second;  // that a copy reaches, not the peak
  double cache_bytes_per_second;   // between the second-level cache and the multiprocessors
  double launch_seconds;           // from the end of one kernel of a graph to the first loads of the next
  double host_bytes_per_second;    // between the memory of the host and that of the GPU
  // Of convolutions and GEMMs, with operands of 2, 4 and 8 bytes:
  double half_flops_per_second, float_flops_per_second, double_flops_per_second;
  double wgmma_flops_per_second;  // of this project's kernels, by wgmma with operands of 2 bytes
  double wavefronts_per_second;   // of shared memory: one per cycle and multiprocessor
};

/// An H100 SXM: 132 multiprocessors, 3.35 TB/s and 989 (f16, bf16), 67 (f32) and 67 (f64) TFLOP/s at the
/// peak. A copy is taken to reach 90 % of the bandwidth, and libraries 45 % of the FLOP/s in half and 80 % in
/// other precisions. These shares, the bandwidth of the cache and the time of a launch are estimates. tf32 is
/// not told from f32. wgmma is taken to reach 75 %, the rate of FlashAttention-3 (README.md).
GpuModel h100_model();

/// Returns the predicted seconds of a launch: the maximum of its bytes at the bandwidth of the memory, its
/// sectors at that of the cache, its FLOPs on tensor cores and its wavefronts of shared memory, plus the
/// time of the launch. If there are fewer blocks than multiprocessors, or the last wave of blocks is not
/// full, the GPU is taken to be idle for the missing part. The model knows neither registers, which may allow
/// fewer blocks at a time, nor the latency of dependent loads, nor data that an earlier kernel has left in
/// the cache. A library's time is that of its FLOPs, or of its bytes if this is more.
double predicted_seconds(const GpuModel& gpu, const CountedLaunch& launch);

}  // namespace convoy::bench
