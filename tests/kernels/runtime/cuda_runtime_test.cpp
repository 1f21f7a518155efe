// CUDA devices, streams, events and memory, on a real or an emulated GPU. Conditions that a real machine
// cannot produce (an outdated driver, exhausted memory) are tested in
// tests/cuda_emulator/tests/runtime_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda/check.h"
#include "convoy/kernels/runtime/cuda/device.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/runtime/library_versions.h"
#include "tests/kernels/device_array.h"
#include "tests/kernels/runtime/graph_fixture.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using ::testing::EndsWith;
using testing::expect_same_bits;
using ::testing::HasSubstr;
using testing::stream_of;

class CudaRuntime : public testing::GpuTest {};

std::string error_of(int index) {
  try {
    DeviceContext::create_cuda(index);
  } catch (const DeviceError& error) {
    EXPECT_EQ(static_cast<int>(error.code()), 7);
    return error.what();
  }
  return "no error";
}

TEST(CudaDevice, ReportsAMissingDriver) {
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version > 0)
    GTEST_SKIP() << "needs a machine without a GPU's driver";
  EXPECT_EQ(error_of(0), "cuda:0: no NVIDIA driver on this machine; use the CPU, or install one");
  EXPECT_EQ(Device::parse("auto").name(), "cpu");
  EXPECT_EQ(Device::best(3).name(), "cpu");
  EXPECT_THROW(DeviceContext{Device::parse("cuda:1")}, DeviceError);
}

TEST(CudaDevice, ExplainsWhyNoGpuIsAvailable) {
  EXPECT_THAT(explain_no_gpu(0, cudaErrorInsufficientDriver), HasSubstr("no NVIDIA driver"));
  EXPECT_THAT(explain_no_gpu(11040, cudaErrorInsufficientDriver),
              HasSubstr("too old: it supports CUDA 11.4, this build"));
  EXPECT_THAT(explain_no_gpu(13000, cudaErrorInitializationError), HasSubstr("cudaErrorInitializationError"));
  unsetenv("CUDA_VISIBLE_DEVICES");
  EXPECT_THAT(explain_no_gpu(13000, cudaErrorNoDevice), HasSubstr("finds no GPU"));
  setenv("CUDA_VISIBLE_DEVICES", "7", 1);
  EXPECT_THAT(explain_no_gpu(13000, cudaErrorNoDevice), HasSubstr("CUDA_VISIBLE_DEVICES is '7'"));
  unsetenv("CUDA_VISIBLE_DEVICES");
}

TEST(CudaUuid, SlicesOfOneGpuAreOneGpu) {
  cudaDeviceProp whole{}, slice{};
  std::copy_n("\x01\x02\xff", 3, whole.uuid.bytes);
  whole.pciBusID = slice.pciBusID = 0x1b;
  std::strcpy(whole.name, "NVIDIA H100 80GB HBM3");
  std::strcpy(slice.name, "NVIDIA H100 80GB HBM3 MIG 1g.10gb");
  EXPECT_EQ(cuda_uuid_text(whole), "GPU-0102ff00000000000000000000000000");
  EXPECT_EQ(cuda_uuid_text(slice), "MIG-0000:1b:00");
  cudaDeviceProp other = slice;
  other.uuid.bytes[0] = 7;  // each slice has a UUID of its own
  EXPECT_EQ(cuda_uuid_text(other), cuda_uuid_text(slice));
}

TEST(CudaCheck, ReportsTheCallAndItsLocation) {
  EXPECT_NO_THROW(CUDA_CHECK(cudaSuccess));
  try {
    CUDA_CHECK(cudaError_t{cudaErrorInvalidValue});
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudaError_t{cudaErrorInvalidValue} failed: invalid argument"));
    EXPECT_THAT(error.what(), HasSubstr("(cudaErrorInvalidValue, cuda_runtime_test.cpp:"));
  }
}

TEST_F(CudaRuntime, ThrowsForAnInvalidIndex) {
  const int count = cuda_availability().count;
  EXPECT_THAT(error_of(count), HasSubstr("no such GPU; this process sees " + std::to_string(count)));
  EXPECT_EQ(Device::parse("auto").name(), "cuda:0");
}

TEST_F(CudaRuntime, HardwareNamesGpuAndLibrary) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const std::string capability = std::to_string(gpu.compute_capability());
  EXPECT_GE(gpu.compute_capability(), 50);
  const std::string cudnn = cudnn_version_text();
  EXPECT_THAT(gpu.hardware(), EndsWith(", sm_" + capability + (cudnn.empty() ? "" : ", " + cudnn)));
  EXPECT_GT(gpu.hardware().find(", sm_"), 3u) << "the GPU's name";
}

TEST_F(CudaRuntime, CopiesBetweenTwoStreamsInOrder) {
  // On a real GPU, the work takes long enough that an unordered reader would be too early.
  const std::int64_t count = testing::gpus_are_emulated() ? 1025 : std::int64_t{1} << 24;
  for_each_order([&] {
    const DeviceContext first = DeviceContext::create_cuda(0);
    const DeviceContext second = DeviceContext::create_cuda(0);  // with another stream and allocator
    const DeviceArray<float> x(first, Array<float>({count}, 1));
    const DeviceArray<float> sum(first, Array<float>({count}, 0));
    const DeviceArray<float> copy(second, {count});
    for (int i = 0; i < 20; ++i)
      kernels::unary_backward(stream_of(first), kernels::UnaryOp::relu, x.view(), x.view(),
                              sum.grad(GradMode::accumulate));
    copy_bytes(first, sum.view(), second, copy.view());
    expect_same_bits(copy.values(), Array<float>({count}, 20));
  });
}

TEST_F(CudaRuntime, EventIsReachedBeforeItIsRecorded) {
  CachingAllocator memory(cuda_memory(0), 0);
  CudaStream stream(0, memory);
  CudaEvent event(0);
  EXPECT_TRUE(event.reached());
  stream.wait(event);
  stream.record(event);
  event.wait();
  EXPECT_TRUE(event.reached());
}

TEST_F(CudaRuntime, MeasuresTheTimeBetweenTwoEvents) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({1025}, 1));
  CudaEvent begin(0, EventTiming::on), end(0, EventTiming::on);
  stream_of(gpu).record(begin);
  kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
  stream_of(gpu).record(end);
  EXPECT_GT(elapsed_ms(begin, end), 0);
  EXPECT_LT(elapsed_ms(begin, end), 10'000);
  CudaEvent untimed(0);
  stream_of(gpu).record(untimed);
  EXPECT_THROW(elapsed_ms(begin, untimed), DeviceError);
  cudaGetLastError();  // clears the error
}

TEST_F(CudaRuntime, HighPriorityStreamRunsKernels) {
  CachingAllocator memory(cuda_memory(0), 0);
  CudaStream stream(0, memory, {.priority = StreamPriority::high});
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  const DeviceArray<float> x(gpu, Array<float>({33}, -1));
  gpu.synchronize();
  kernels::unary_forward(stream, kernels::UnaryOp::relu, x.view(), x.view());
  stream.synchronize();
  expect_same_bits(x.values(), Array<float>({33}, 0));
}

TEST_F(CudaRuntime, StagingMemorySupportsAsynchronousCopies) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    constexpr std::int64_t kCount = 1000;
    constexpr std::size_t kBytes = kCount * sizeof(float);
    auto* const in = static_cast<float*>(gpu.staging().allocate(kBytes));
    auto* const out = static_cast<float*>(gpu.staging().allocate(kBytes));
    std::iota(in, in + kCount, -500.0f);
    const DeviceArray<float> x(gpu, {kCount});
    CudaEvent copied(0);
    copy_bytes_async(Device::cpu(), ConstView(in, {kCount}, DType::f32), gpu, x.view());
    kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
    copy_bytes_async(gpu, x.view(), Device::cpu(), View{out, {kCount}, DType::f32});
    stream_of(gpu).record(copied);
    copied.wait();
    for (std::int64_t i = 0; i < kCount; ++i) EXPECT_EQ(out[i], std::max(0.0f, in[i])) << i;
    EXPECT_GE(gpu.staging().stats().peak_in_use, 2 * kBytes);
    gpu.staging().release(in, kBytes);
    gpu.staging().release(out, kBytes);
    EXPECT_EQ(gpu.staging().stats().in_use, 0u);
  });
}

TEST(CpuRuntime, StagingMemoryIsTheDeviceMemory) {
  const DeviceContext cpu = Device::cpu();
  EXPECT_EQ(&cpu.staging(), &cpu.memory());
  const Array<float> from({3}, {1, 2, 3});
  Array<float> to({3});
  copy_bytes_async(cpu, from.view(), cpu, to.view());
  expect_same_bits(to, from);
}

TEST_F(CudaRuntime, HostThreadsLaunchOnSeparateStreams) {
  for_each_order([] {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t)
      threads.emplace_back([t] {
        const DeviceContext own = DeviceContext::create_cuda(0);  // with its own stream and memory
        const DeviceArray<float> x(own, Array<float>({257}, static_cast<float>(t)));
        const DeviceArray<float> ones(own, Array<float>({257}, 1));
        const DeviceArray<float> sum(own, Array<float>({257}, 0));
        for (int i = 0; i < 10; ++i)
          kernels::unary_backward(stream_of(own), kernels::UnaryOp::relu, x.view(), ones.view(),
                                  sum.grad(GradMode::accumulate));
        expect_same_bits(sum.values(), Array<float>({257}, 10 * static_cast<float>(t)));
      });
    for (std::thread& thread : threads) thread.join();
  });
}

TEST_F(CudaRuntime, OutOfMemoryThrowsAndLeavesTheDeviceUsable) {
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  try {
    gpu.memory().allocate(std::size_t{1} << 50);
    FAIL() << "1 PiB was allocated";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("out of memory on cuda:0: asked for 1024.00 TiB"));
    EXPECT_THAT(error.what(), HasSubstr("the GPU has "));
    EXPECT_THAT(error.what(), HasSubstr("use smaller batches"));
  }
  const DeviceArray<float> x(gpu, Array<float>({33}, -1));
  kernels::unary_forward(stream_of(gpu), kernels::UnaryOp::relu, x.view(), x.view());
  expect_same_bits(x.values(), Array<float>({33}, 0));
}

class CudaEvents : public testing::GpuTest {};

TEST_F(CudaEvents, BlocksAnotherStreamUntilReached) {
  // On a real GPU, the work takes long enough that an unordered reader would be too early.
  const std::int64_t count = testing::gpus_are_emulated() ? 1025 : std::int64_t{1} << 24;
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    CachingAllocator memory(cuda_memory(0), 0);
    CudaStream other(0, memory, {.priority = StreamPriority::high});
    const DeviceArray<float> x(gpu, Array<float>({count}, 1));
    const DeviceArray<float> sum(gpu, Array<float>({count}, 0));
    const DeviceArray<float> copy(gpu, {count});
    Event ready(gpu.stream()), done(gpu.stream());
    EXPECT_TRUE(ready.reached());
    for (int i = 0; i < 20; ++i)
      on(gpu.stream(), [&](auto& stream) {
        kernels::unary_backward(stream, kernels::UnaryOp::relu, x.view(), x.view(),
                                sum.grad(GradMode::accumulate));
      });
    ready.record(gpu.stream());
    ready.wait(std::ref(other));
    kernels::unary_forward(other, kernels::UnaryOp::relu, sum.view(), copy.view());
    done.record(std::ref(other));
    done.wait(gpu.stream());
    testing::expect_same_bits(copy.values(), Array<float>({count}, 20));
    done.wait();
    EXPECT_TRUE(done.reached());
  });
}

TEST_F(CudaEvents, ThrowsForStreamsOfAnotherKind) {
  const DeviceContext gpu = DeviceContext::create_cuda(0), cpu = DeviceContext::create_cpu({.threads = 1});
  Event of_gpu(gpu.stream()), of_cpu(cpu.stream());
  EXPECT_THROW(of_gpu.record(cpu.stream()), UsageError);
  EXPECT_THROW(of_cpu.wait(gpu.stream()), UsageError);
  EXPECT_THROW(Event::timed(gpu.stream()).record(cpu.stream()), UsageError);
  EXPECT_THROW(Event::timed(cpu.stream()).record(gpu.stream()), UsageError);
}

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
