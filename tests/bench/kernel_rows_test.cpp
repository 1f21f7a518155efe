// Tests that each row of the kernel benchmark runs on every available device, with small arrays.
#include "bench/kernels/kernel_rows.h"

#include <gtest/gtest.h>

#include <set>

#include "convoy/kernels/base/check.h"
#include "tests/cuda_emulator/counted/counted_launch.h"

namespace convoy::bench {
namespace {

constexpr std::int64_t kFewElements = 1 << 17;

void run_all(const DeviceContext& device) {
  for (const KernelRow& row : kernel_rows(kFewElements)) {
    SCOPED_TRACE(row.name);
    const std::function<void()> run = row.prepare(device);
    run();
    run();  // the arrays outlive the first call
    device.synchronize();
  }
}

TEST(KernelRows, RunOnTheCpu) { run_all(DeviceContext::create_cpu({.threads = 1})); }

TEST(KernelRows, RunOnAGpu) {
  if (cuda_availability().count == 0) GTEST_SKIP() << "needs a GPU: " << cuda_availability().reason;
  run_all(DeviceContext::create_cuda(0));
}

TEST(KernelRows, CountBytesProportionalToTheArrays) {
  const std::vector<KernelRow> once = kernel_rows(kFewElements);
  const std::vector<KernelRow> twice = kernel_rows(2 * kFewElements);
  std::set<std::string> names;
  for (std::size_t i = 0; i < once.size(); ++i) {
    EXPECT_TRUE(names.insert(once[i].name).second) << once[i].name;
    const double ratio = static_cast<double>(twice[i].bytes_read + twice[i].bytes_written) /
                         static_cast<double>(once[i].bytes_read + once[i].bytes_written);
    EXPECT_NEAR(ratio, 2, 0.05) << once[i].name;  // not exact: whole images and whole rows of logits
  }
  EXPECT_EQ(once.front().name, "copy");
  EXPECT_EQ(once.front().bytes_read, once.front().bytes_written);
}

// The kernels of this test program are not compiled for counting.
TEST(CountedLaunches, AreRefusedWhereNothingIsCounted) {
  EXPECT_FALSE(can_count_launches());
  EXPECT_THROW(counted_launches([] { FAIL() << "must not run"; }), UsageError);
}

}  // namespace
}  // namespace convoy::bench
