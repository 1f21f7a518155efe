// What ranks exchange while they are measured: whole numbers, whose sums every type has exactly.
#pragma once

#include <cstdint>

#include "bench/collective_case.h"
#include "engine/tensor/tensor.h"
#include "kernels/runtime/device.h"

namespace convoy::bench {

/// The largest number that a rank gives: sums over all ranks stay within those that a type has without gaps
/// (f64 2^53, i32 2^31, f32 2^24, f16 2^11, bf16 2^8), so that they are exact in any order of additions and
/// however often they are rounded. 0 where there are more ranks than that.
std::int64_t largest_value(const Case& one);

/// What a rank gives to element i of its input in the given round: from 0 to `largest`, another for other
/// ranks, elements and rounds.
std::int64_t value_of(int rank, std::int64_t i, std::uint32_t round, std::int64_t largest);

/// One rank's memory for cases of up to so many bytes, on its device.
class CollectiveData {
 public:
  /// `threads`: cores that fill it and look at it.
  CollectiveData(const Device& device, int threads, std::int64_t most_bytes);

  /// What the collective is given. In place they share memory: of those that differ in size, the smaller one
  /// is this rank's part of the other.
  View in(const Case& one, Way way, int rank) const;
  View out(const Case& one, Way way, int rank) const;

  /// Puts the rank's values into in(), and what is no result into an out() of its own. Returns when the
  /// device has them.
  void fill(const Case& one, Way way, int rank, std::uint32_t round);

  /// Elements of a result on the device that are not what fill() of all ranks, in that round, comes to.
  std::int64_t count_wrong(const Case& one, int rank, std::uint32_t round, ConstView result) const;

 private:
  Device device_;
  mutable CpuStream host_stream_;
  Tensor first_, second_;  // bytes
};

}  // namespace convoy::bench
