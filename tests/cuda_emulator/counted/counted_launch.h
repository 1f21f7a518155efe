// What kernels access, counted by the emulated GPUs.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace convoy::bench {

/// The loads, or the stores, of device memory by a launch. A request is one instruction of a warp.
struct GlobalTraffic {
  std::int64_t requests = 0;
  std::int64_t sectors = 0;  // of 32 bytes, summed over the requests
  std::int64_t bytes = 0;    // that the lanes ask for, summed over the requests
  std::int64_t lanes = 0;    // that take part, summed over the requests

  GlobalTraffic& operator+=(const GlobalTraffic& other);
};

/// One launch of a kernel, a copy, a fill or a call of a library; or the sum of several ones. The counts
/// below the bytes are those of kernels.
struct CountedLaunch {
  std::string name;         // "batch_norm_moments_kernel", "conv2d forward", "copy to the GPU"
  bool is_kernel = true;    // of this project
  std::int64_t blocks = 0;  // in the grid of a kernel; 0 if it is none
  int block_threads = 0;    // of a kernel; 0 if it is none
  std::int64_t flops = 0;   // of a library, or of a kernel's tensor-core instructions
  int element_bytes = 0;    // of a library's operands
  std::int64_t bytes_read = 0, bytes_written = 0;  // distinct bytes: what a perfect cache leaves
  GlobalTraffic loads, stores;
  std::int64_t shared_requests = 0;
  std::int64_t shared_wavefronts = 0, minimum_wavefronts = 0;  // minimum: without bank conflicts
  std::int64_t barriers = 0;                                   // of blocks
  std::int64_t atomics = 0;                                    // of threads

  std::int64_t bytes() const { return bytes_read + bytes_written; }
  /// Returns the share of the bytes of all sectors that the lanes ask for, in [0, 1].
  double sector_efficiency() const;
  /// Returns how many wavefronts there are for each necessary one, at least 1.
  double bank_conflicts() const;
  /// Returns the mean number of active lanes per request of device memory, at most 32.
  double active_lanes() const;

  /// Adds the counts of another launch. Keeps the name and sizes.
  CountedLaunch& operator+=(const CountedLaunch& other);
};

/// Returns whether this program can count: its GPUs are emulated, and its kernels were compiled for counting.
bool can_count_launches();
/// Throws UsageError if it cannot.
void require_counting();

/// Calls `run`, which must wait for the GPU at its end, and returns what it has launched, in order. Throws
/// UsageError if this program cannot count.
std::vector<CountedLaunch> counted_launches(const std::function<void()>& run);

/// The same in two calls. The GPU must be idle at both.
void start_counting_launches();
std::vector<CountedLaunch> stop_counting_launches();

/// Lets the emulated libraries store zeros instead of convolutions and GEMMs from now on, and tensor cores
/// not compute, which would take minutes. What kernels access does not depend on values, except where they
/// choose elements by index. Does nothing in a build without emulated GPUs.
void skip_libraries();

}  // namespace convoy::bench
