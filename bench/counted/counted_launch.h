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

/// One launch of a kernel, or the sum of several ones.
struct CountedLaunch {
  std::string kernel;       // "batch_norm_moments_kernel"
  std::int64_t blocks = 0;  // in the grid
  int block_threads = 0;
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

/// Calls `run`, which must wait for the GPU at its end, and returns the launches of its kernels, in order.
/// Throws UsageError if this program cannot count. GEMMs and convolutions of libraries are not counted.
std::vector<CountedLaunch> counted_launches(const std::function<void()>& run);

}  // namespace convoy::bench
