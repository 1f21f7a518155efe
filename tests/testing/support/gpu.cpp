#include "tests/testing/support/gpu.h"

namespace convoy::testing {

void GpuTest::SetUp() {
  const CudaAvailability gpus = cuda_availability();
  if (gpus.count == 0) GTEST_SKIP() << "needs a GPU: " << gpus.reason;
}

void GpuTest::TearDown() {
  EXPECT_EQ(take_gpu_report(), "");
  set_gpu_order(0);
}

}  // namespace convoy::testing
