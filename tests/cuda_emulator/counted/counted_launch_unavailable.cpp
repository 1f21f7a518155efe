// Counting in a build whose GPUs are not emulated.
#include "convoy/kernels/base/check.h"
#include "tests/cuda_emulator/counted/counted_launch.h"

namespace convoy::bench {

bool can_count_launches() { return false; }

void require_counting() {
  fail<UsageError>("--count: found a build without emulated GPUs, expected one of 'cmake --preset test'");
}

void start_counting_launches() { require_counting(); }

std::vector<CountedLaunch> stop_counting_launches() { return {}; }

void skip_libraries() {}

}  // namespace convoy::bench
