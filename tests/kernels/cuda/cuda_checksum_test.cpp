// Compares checksum() of kernels/reduce.h on the GPU with the CPU.
#include "convoy/kernels/reduce.h"

#include <gtest/gtest.h>

#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;

class CudaChecksum : public testing::GpuTest {};

template <class T>
void expect_value_of_cpu(const DeviceContext& gpu, std::int64_t count) {
  CpuStream cpu{{.threads = 1}};
  const auto x = Array<T>::random({count}, 5);
  Array<std::int32_t> expected({2}, 0), found({2}, 0);
  kernels::checksum(cpu, x.view(), expected.view());
  const DeviceArray<T> gpu_x(gpu, x);
  const DeviceArray<std::int32_t> value(gpu, Array<std::int32_t>({2}, 7));
  on(gpu.stream(), [&](auto& s) { kernels::checksum(s, gpu_x.view(), value.view()); });
  found = value.values();
  EXPECT_EQ(found[0], expected[0]) << count;
  EXPECT_EQ(found[1], expected[1]) << count;
}

TEST_F(CudaChecksum, IsThatOfTheCpu) {
  const DeviceContext gpu = Device::best();
  for (const std::int64_t count : {0, 1, 2, 3, 7, 8, 31, 32, 33, 255, 257, 1025, 70001}) {
    expect_value_of_cpu<float>(gpu, count);
    expect_value_of_cpu<double>(gpu, count);
    expect_value_of_cpu<bfloat16>(gpu, count);
  }
}

}  // namespace
}  // namespace convoy
