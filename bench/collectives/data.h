// Test data for collectives: integers whose sums are exact in every data type.
#pragma once

#include <cstdint>

#include "bench/collectives/case.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy::bench {

/// Returns the largest input value of a rank. It is chosen so that sums over all ranks stay within the range
/// of consecutive integers that the type represents (f64 2^53, i32 2^31, f32 2^24, f16 2^11, bf16 2^8). Such
/// sums are exact in any order of additions and with any number of roundings. Returns 0 if the world size
/// exceeds that range.
std::int64_t largest_value(const Case& one);

/// Returns the value of element `i` of a rank's input in the given round: a hash of rank, element and round,
/// from 0 to `largest`.
std::int64_t value_of(int rank, std::int64_t i, std::uint32_t round, std::int64_t largest);

/// The device memory of one rank for cases of up to a given number of bytes.
class CollectiveData {
 public:
  /// Allocates the memory on `device`. `threads` is the number of CPU threads that fill and check it.
  CollectiveData(const DeviceContext& device, int threads, std::int64_t max_bytes);

  /// Returns the input of the collective. In-place, input and output share memory: if they differ in size,
  /// the smaller one is this rank's shard of the larger one.
  View in(const Case& one, Placement placement, int rank) const;
  /// Returns the output of the collective.
  View out(const Case& one, Placement placement, int rank) const;

  /// Writes the rank's values to in(), and values that are not a valid result to the rest of out(). Blocks
  /// until the device has them.
  void fill(const Case& one, Placement placement, int rank, std::uint32_t round);

  /// Returns the number of elements of `result` that differ from the result expected from the values of
  /// fill() on all ranks in that round. Blocks until the device has been read.
  std::int64_t count_wrong(const Case& one, int rank, std::uint32_t round, ConstView result) const;

 private:
  DeviceContext device_;
  mutable CpuStream host_stream_;
  Tensor first_, second_;  // bytes
};

}  // namespace convoy::bench
