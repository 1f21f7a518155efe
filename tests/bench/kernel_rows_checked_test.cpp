// Every kernel of the benchmarks' table, with each access checked: races, bounds, uninitialized memory.
#include <gtest/gtest.h>

#include "bench/kernels/kernel_rows.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using KernelRowsChecked = testing::GpuTest;

TEST_F(KernelRowsChecked, HaveNoFindings) {
  const DeviceContext device = DeviceContext::create_cuda(0);
  for (const bench::KernelRow& row : bench::kernel_rows(16'384)) {
    SCOPED_TRACE(row.name);
    row.prepare(device)();
    device.synchronize();
    EXPECT_EQ(testing::take_gpu_report(), "");
  }
}

}  // namespace
}  // namespace convoy
