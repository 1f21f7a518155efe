// Tests of the step that loads the libraries of a GPU.
#include "convoy/apps/programs/library_loading.h"

#include <gtest/gtest.h>

#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

TEST(LibraryLoading, StepRunsInEveryPrecisionOfTheCpu) {
  const DeviceContext cpu = Device::cpu();
  for (const std::string& name : precision_names()) {
    const Precision precision = parse_precision(name);
    if (!supports(cpu, precision)) continue;
    EXPECT_NO_THROW(load_libraries(cpu, precision)) << name;
  }
  const LibraryLoading nothing_to_load(cpu, parse_precision("fp32"));
}

class LibraryLoadingGpu : public testing::GpuTest {};

TEST_F(LibraryLoadingGpu, StepRunsInEveryPrecision) {
  for (const std::string& name : precision_names()) {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    EXPECT_NO_THROW(load_libraries(gpu, parse_precision(name))) << name;
  }
}

TEST_F(LibraryLoadingGpu, LeavesNoTraceOnTheTrainingsContext) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto before = gpu.algorithm_cache().revision();
  { const LibraryLoading loading(gpu, parse_precision("bf16")); }
  EXPECT_EQ(gpu.algorithm_cache().revision(), before);
  EXPECT_TRUE(gpu.take_warnings().empty());
}

}  // namespace
}  // namespace convoy
