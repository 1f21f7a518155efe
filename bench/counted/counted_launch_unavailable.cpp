// counted_launches() in a build whose GPUs are not emulated.
#include "bench/counted/counted_launch.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {

bool can_count_launches() { return false; }

std::vector<CountedLaunch> counted_launches(const std::function<void()>& /*run*/) {
  fail<UsageError>("--count: found a build without emulated GPUs, expected one of 'cmake --preset test'");
}

}  // namespace convoy::bench
