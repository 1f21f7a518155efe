// Division on the GPU by a number that the host knows at the launch.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/runtime/dtype.h"

namespace convoy::cuda {

/// Division by 1 … 2^31 - 1 as a product and a shift (Granlund and Montgomery, "Division by invariant
/// integers using multiplication", PLDI 1994). The hardware divides no integers: it takes some twenty
/// instructions in 32 bits and a hundred in 64, and a thread takes its index apart by several sizes.
class Divisor {
 public:
  explicit Divisor(std::int64_t divisor)
      : divisor_(static_cast<std::uint32_t>(divisor)),
        shift_(31 + std::bit_width(divisor_ - 1)),
        multiplier_(static_cast<std::uint32_t>(((std::uint64_t{1} << shift_) + divisor_ - 1) / divisor_)) {}

  /// n / divisor, n >= 0. Exact below 2^31 by the product; beyond, where arrays are of many GiB, by division.
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

}  // namespace convoy::cuda
