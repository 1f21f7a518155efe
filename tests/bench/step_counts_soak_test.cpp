// The step of the published table, whose emulation takes minutes. A batch of 8 has other kernels in the first layers, so
// kernel_counts_test does not see all of it.
#include <gtest/gtest.h>

#include "tests/bench/counted_step.h"

namespace convoy::bench {
namespace {

TEST(StepCounts, AreCommittedForALargeBatch) { expect_committed_counts(128); }

}  // namespace
}  // namespace convoy::bench
