// Tests of the step that loads the libraries of a GPU, on a GPU. units_test.cpp runs it on the CPU.
#include "convoy/apps/programs/library_loading.h"

#include <gtest/gtest.h>

#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

class LibraryLoadingOnAGpu : public testing::GpuTest {};

TEST_F(LibraryLoadingOnAGpu, StepRunsInEveryPrecision) {
  for (const std::string& name : precision_names()) {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    EXPECT_NO_THROW(load_libraries(gpu, parse_precision(name))) << name;
  }
}

TEST_F(LibraryLoadingOnAGpu, LeavesNoTraceOnTheTrainingsContext) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const auto before = gpu.algorithm_cache().revision();
  load_libraries_in_background(gpu, parse_precision("bf16"));
  EXPECT_EQ(gpu.algorithm_cache().revision(), before);
  EXPECT_TRUE(gpu.take_warnings().empty());
}

}  // namespace
}  // namespace convoy
