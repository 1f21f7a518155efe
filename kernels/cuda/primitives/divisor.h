// Fast integer division on the GPU by a divisor that the host knows at launch.
#pragma once

#include <bit>
#include <cstdint>

#include "convoy/kernels/base/dtype.h"

namespace convoy::kernels::cuda {

/// A divisor from 1 to 2^31 - 1. Divides by a multiplication and a shift (Granlund and Montgomery, "Division
/// by invariant integers using multiplication", PLDI 1994). GPUs have no integer division: it takes about 20
/// instructions in 32 bits and 100 in 64 bits, and a thread splits its index by several sizes.
class Divisor {
 public:
  explicit Divisor(std::int64_t divisor)
      : divisor_(static_cast<std::uint32_t>(divisor)),
        shift_(31 + std::bit_width(divisor_ - 1)),
        multiplier_(static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + divisor_ - 1) / divisor_)) {}

  /// Returns n / divisor, rounded down, for n >= 0. The result is exact. Uses the multiplication below 2^31
  /// and a division above, which only arrays of many GiB need.
  CONVOY_HOST_DEVICE std::int64_t quotient(std::int64_t n) const {
    if (n >> 31 != 0) return n / divisor_;
    return static_cast<std::int64_t>((static_cast<std::uint64_t>(n) * multiplier_) >> shift_);
  }
  CONVOY_HOST_DEVICE int quotient(int n) const {
    return static_cast<int>((static_cast<std::uint64_t>(n) * multiplier_) >> shift_);
  }
  CONVOY_HOST_DEVICE std::int64_t value() const { return divisor_; }

 private:
  std::uint32_t divisor_;
  int shift_;
  std::uint32_t multiplier_;  // 2^shift / divisor, rounded up
};

}  // namespace convoy::kernels::cuda
