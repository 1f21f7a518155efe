// Dispatch in a build with CUDA: the same call runs the kernel of the CPU or of the GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;

class CudaDispatch : public testing::GpuTest {};

Array<float> relu_on(const DeviceContext& device, const Array<float>& x) {
  const DeviceArray<float> on_device(device, x);
  on(device.stream(), [&](auto& stream) {
    kernels::unary_forward(stream, kernels::UnaryOp::relu, on_device.view(), on_device.view());
  });
  return on_device.values();
}

TEST_F(CudaDispatch, CallsTheKernelOfTheDevice) {
  const Array<float> x({3}, {-2, 0, 5});
  const Array<float> y({3}, {0, 0, 5});
  testing::expect_same_bits(relu_on(Device::cpu(), x), y);
  testing::expect_same_bits(relu_on(DeviceContext::create_cuda(0), x), y);
}

TEST_F(CudaDispatch, ThrowsUsageErrorForUnsupportedTypes) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<std::int32_t> x(gpu, {8});
  EXPECT_THROW(
      on(gpu.stream(),
         [&](auto& stream) { kernels::unary_forward(stream, kernels::UnaryOp::relu, x.view(), x.view()); }),
      UsageError);
}

TEST_F(CudaDispatch, ThrowsUsageErrorForAKernelOfTheCpuAlone) {
  int calls = 0;
  const auto kernel = [&](CpuStream&) { return ++calls; };
  EXPECT_EQ(on(DeviceContext::create_cpu({}).stream(), kernel), 1);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  EXPECT_THAT(testing::message_of<UsageError>([&] { on(gpu.stream(), kernel); }),
              ::testing::HasSubstr("found a tensor on a GPU, and an op with a kernel for the CPU alone"));
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace convoy
