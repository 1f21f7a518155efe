// Event on the streams of a GPU.
#include <gtest/gtest.h>

#include "convoy/kernels/elementwise.h"
#include "convoy/kernels/runtime/cuda/device.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/event.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;

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

}  // namespace
}  // namespace convoy
