// Tests of errors: failed launches, kernel faults, machines without a usable GPU, and out-of-memory.
#include <cstdlib>
#include <functional>
#include <thread>

#include "convoy/kernels/cuda/primitives/early_start.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/runtime/device_context.h"
#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string error_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const DeviceError& error) {
    EXPECT_EQ(static_cast<int>(error.code()), 7);
    return error.what();
  }
  return "no error";
}

__global__ void nothing() {}

TEST(Environment, RejectsInvalidValues) {
  EXPECT_DEATH(run_again("ThreadOrder.*", "CONVOY_EMULATOR_ORDER", "sideways"),
               "CONVOY_EMULATOR_ORDER: found 'sideways', expected one of the values");
  EXPECT_DEATH(run_again("ThreadOrder.*", "CONVOY_EMULATED_GPUS", "two"),
               "CONVOY_EMULATED_GPUS: found 'two', expected a number");
  for (const char* wrong : {"9", "9.", ".0", "9.00", "nine.0"})
    EXPECT_DEATH(run_again("ThreadOrder.*", "CONVOY_EMULATED_CAPABILITY", wrong),
                 "CONVOY_EMULATED_CAPABILITY: found '.*', expected one like 9.0");
}

class LaunchErrors : public EmulatorTest {};

TEST_F(LaunchErrors, RejectsInvalidSizes) {
  Gpu gpu;
  for (const dim3 block :
       {dim3(0), dim3(1025), dim3(1, 1025), dim3(1, 1, 65), dim3(32, 33), dim3(65536, 65536)})
    EXPECT_THAT(error_of([&] { kernels::launch(gpu.stream, 1, block, 0, nothing); }),
                HasSubstr("invalid configuration argument"));
  for (const dim3 grid : {dim3(0), dim3(1, 0), dim3(1, 65536), dim3(1, 1, 65536), dim3(2147483648u)})
    EXPECT_THAT(error_of([&] { kernels::launch(gpu.stream, grid, 1, 0, nothing); }),
                HasSubstr("invalid configuration argument"));
  EXPECT_EQ(
      error_of([&] { kernels::launch(gpu.stream, dim3(2, 70000), dim3(32, 2), 8, nothing); }),
      "a kernel could not start on cuda:0: invalid configuration argument (grid 2x70000x1, block 32x2x1, 8 "
      "B of shared memory)");
  for (const dim3 block : {dim3(1024), dim3(1, 1024), dim3(16, 1, 64)})
    EXPECT_NO_THROW(kernels::launch(gpu.stream, dim3(1, 2, 3), block, 0, nothing));
}

TEST_F(LaunchErrors, RejectsTooMuchSharedMemory) {
  Gpu gpu;
  EXPECT_NO_THROW(kernels::launch(gpu.stream, 1, 1, kDefaultSharedBytes, nothing));
  EXPECT_THAT(error_of([&] { kernels::launch(gpu.stream, 1, 1, kDefaultSharedBytes + 1, nothing); }),
              HasSubstr("invalid argument (grid 1x1x1, block 1x1x1, 49153 B of shared memory)"));
  EXPECT_NO_THROW(kernels::launch(gpu.stream, 1, 1, 0, nothing)) << "a launch error is not sticky";
  EXPECT_EQ(cudaGetLastError(), cudaSuccess) << "and no other call reports it";
}

constexpr int kTrapLine = __LINE__ + 2;
__global__ void trap_in(unsigned thread) {
  if (threadIdx.x == thread) __trap();
}

template <bool kWaits>
__global__ void start_early(unsigned exempt) {
  if (kWaits || threadIdx.x == exempt) kernels::cuda::wait_for_previous_kernel();
}

class EarlyStart : public EmulatorTest {};

TEST_F(EarlyStart, EveryThreadMustWaitForThePreviousKernel) {
  using kernels::LaunchStart;
  Gpu gpu;
  kernels::launch(LaunchStart::early, gpu.stream, 2, 32, 0, start_early<true>, 0u);
  kernels::launch(LaunchStart::after_previous, gpu.stream, 2, 32, 0, start_early<false>, 0u);
  EXPECT_NO_THROW(gpu.stream.synchronize());
  kernels::launch(LaunchStart::early, gpu.stream, 2, 32, 0, start_early<false>, 0u);
  EXPECT_THAT(error_of([&] { gpu.stream.synchronize(); }), HasSubstr("unspecified launch failure"));
  EXPECT_THAT(report(), HasSubstr("thread (1, 0, 0): ends without having waited for the previous kernel"));
  reset();
}

// A build for sm_80 alone: GPUs of sm_90 compile its PTX, whose kernels do not wait.
TEST_F(EarlyStart, FollowsTheCodeThatRunsAndNotTheGpu) {
  Settings changed = settings();
  changed.code = 80;
  set(changed);
  Gpu gpu;
  EXPECT_FALSE(gpu.stream.local<kernels::LaunchLimits>().starts_early);
  kernels::launch(kernels::LaunchStart::early, gpu.stream, 2, 32, 0, start_early<false>, 0u);
  EXPECT_NO_THROW(gpu.stream.synchronize());
}

class Fault : public EmulatorTest {};

TEST_F(Fault, StaysUntilResetAndIsPrintedOnce) {
  const std::string what =
      "runtime_test.cpp:" + std::to_string(kTrapLine) + ": block (0, 0, 0), thread (5, 0, 0): __trap()";
  ::testing::internal::CaptureStderr();
  {
    Gpu gpu;
    const Numbers<float> x(gpu, 10);
    EXPECT_NO_THROW(kernels::launch(gpu.stream, 1, 32, 0, trap_in, 5u))
        << "a launch reports only errors of its start";
    const std::string error = error_of([&] { gpu.stream.synchronize(); });
    EXPECT_THAT(error, HasSubstr("cudaStreamSynchronize(stream_) failed: unspecified launch failure "
                                 "(cudaErrorLaunchFailure, stream.cpp:"));
    EXPECT_EQ(report(), what);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THAT(error_of([&] { kernels::launch(gpu.stream, 1, 32, 0, trap_in, 6u); }),
                  HasSubstr("unspecified launch failure"));
      EXPECT_THAT(error_of([&] { gpu.memory.allocate(10); }), HasSubstr("unspecified launch failure"));
      EXPECT_THAT(error_of([&] { CudaEvent event(0); }), HasSubstr("unspecified launch failure"));
      EXPECT_THAT(error_of([&] { x.values(); }), HasSubstr("unspecified launch failure"));
      EXPECT_EQ(cudaGetLastError(), cudaErrorLaunchFailure);
    }
    EXPECT_EQ(report(), what);
  }  // destructors do not throw, and memory is released
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "CUDA emulator: " + what + "\n");
  reset();
  EXPECT_EQ(report(), "");
  Gpu gpu;
  kernels::launch(gpu.stream, 1, 32, 0, trap_in, 99u);
  EXPECT_NO_THROW(gpu.stream.synchronize());
}

TEST_F(Fault, IsReportedWithoutHostWait) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  kernels::launch(gpu.stream, 1, 32, 0, trap_in, 5u);
  EXPECT_THAT(report(), HasSubstr("__trap()"));
  reset();
}

TEST_F(Fault, DiscardsLaterWork) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  CudaEvent after(0);
  kernels::launch(gpu.stream, 1, 32, 0, trap_in, 5u);
  kernels::launch(gpu.stream, 1, 32, 0, trap_in, 6u);
  gpu.stream.record(after);
  EXPECT_THAT(report(), HasSubstr("thread (5, 0, 0)"));
  reset();
  EXPECT_EQ(report(), "") << "the second launch is discarded";
  EXPECT_TRUE(after.reached());
}

class MachineErrors : public EmulatorTest {
 protected:
  static std::string error_on(const Settings& machine, int index) {
    const ScopedSettings settings(machine);
    return error_of([&] { DeviceContext::create_cuda(index); });
  }
};

TEST_F(MachineErrors, AreOneLineEach) {
  EXPECT_EQ(error_on({.gpus = 0, .driver_version = 0}, 0),
            "cuda:0: no NVIDIA driver on this machine; use the CPU, or install one");
  EXPECT_EQ(error_on({.gpus = 1, .driver_version = 12040}, 0),
            "cuda:0: the NVIDIA driver is too old: it supports CUDA 12.4, this build needs 13.0; update the "
            "driver");
  EXPECT_THAT(error_on({.gpus = 0, .driver_version = 13000}, 0),
              ::testing::AnyOf(HasSubstr("finds no GPU"), HasSubstr("CUDA_VISIBLE_DEVICES")));
  EXPECT_EQ(error_on(kTwoGpus, 2),
            "cuda:2: no such GPU; this process sees 2, cuda:0 to cuda:1 (see CUDA_VISIBLE_DEVICES)");
  EXPECT_EQ(error_on(kTwoGpus, 1), "no error");
  EXPECT_EQ(error_on({.gpus = 1, .driver_version = 13010}, 0), "no error") << "a newer driver";
}

TEST_F(MachineErrors, OutOfMemory) {
  Settings small = kTwoGpus;
  small.memory_bytes = std::size_t{8} << 20;
  const ScopedSettings settings(small);
  CachingAllocator memory(cuda_memory(1), 0);
  void* const block = memory.allocate(std::size_t{6} << 20);
  EXPECT_EQ(
      error_of([&] { memory.allocate(std::size_t{3} << 20); }),
      "out of memory on cuda:1: asked for 3.00 MiB, 6.00 MiB in use (peak 6.00 MiB); the GPU has 2.00 MiB of "
      "8.00 MiB free, counting all processes; use smaller batches");
  memory.release(block, std::size_t{6} << 20);
  EXPECT_NO_THROW(memory.release(memory.allocate(std::size_t{7} << 20), std::size_t{7} << 20))
      << "cached blocks are freed first";
}

TEST_F(MachineErrors, OutOfPinnedMemory) {
  Settings small = kTwoGpus;
  small.pinned_bytes = 1000;
  const ScopedSettings settings(small);
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  EXPECT_EQ(
      error_of([&] { gpu.staging().allocate(2048); }),
      "out of memory on the pinned host memory of cuda:0: asked for 2.00 KiB, 0 B in use (peak 0 B); use smaller "
      "batches");
}

class Contexts : public EmulatorTest {};

TEST_F(Contexts, QueriesCreateNone) {
  EXPECT_EQ(cuda_availability().count, 2);
  EXPECT_THAT(contexts(), ElementsAre());
}

TEST_F(Contexts, WorkOnOneGpuCreatesNoneOnAnother) {
  // Runs each call in a new thread, whose current GPU is 0.
  const auto in_thread = [](const std::function<void()>& f) { std::thread(f).join(); };
  std::unique_ptr<DeviceContext> gpu;
  std::unique_ptr<CudaEvent> begin, end;
  std::unique_ptr<CudaStream> second;
  void *block = nullptr, *staged = nullptr;
  const auto stream = [&]() -> CudaStream& {
    return std::get<std::reference_wrapper<CudaStream>>(gpu->stream());
  };
  const auto view = [](void* data) { return View{data, {4}, DType::f32}; };
  in_thread([&] { gpu = std::make_unique<DeviceContext>(DeviceContext::create_cuda(1)); });
  in_thread([&] {
    second =
        std::make_unique<CudaStream>(1, gpu->memory(), CudaStreamOptions{.priority = StreamPriority::high});
  });
  in_thread([&] { block = gpu->memory().allocate(16); });
  in_thread([&] { staged = gpu->staging().allocate(16); });
  in_thread([&] { begin = std::make_unique<CudaEvent>(1, EventTiming::on); });
  in_thread([&] { end = std::make_unique<CudaEvent>(1, EventTiming::on); });
  in_thread([&] { stream().record(*begin); });
  in_thread([&] { copy_bytes(Device::cpu(), view(staged), *gpu, view(block)); });
  in_thread([&] { copy_bytes_async(*gpu, view(block), Device::cpu(), view(staged)); });
  in_thread([&] { copy_bytes(*gpu, view(block), *gpu, view(block)); });
  in_thread([&] { kernels::launch(stream(), 1, 1, 0, nothing); });
  in_thread([&] { stream().record(*end); });
  in_thread([&] { second->wait(*end); });
  in_thread([&] { second->synchronize(); });
  in_thread([&] { EXPECT_TRUE(end->reached()); });
  in_thread([&] { end->wait(); });
  in_thread([&] { EXPECT_GE(elapsed_ms(*begin, *end), 0); });
  in_thread([&] { gpu->synchronize(); });
  in_thread([&] { EXPECT_THROW(gpu->memory().allocate(std::size_t{1} << 50), DeviceError); });
  in_thread([&] { gpu->memory().release(block, 16); });
  in_thread([&] { gpu->memory().trim(); });
  in_thread([&] { gpu->staging().release(staged, 16); });
  in_thread([&] { gpu->staging().trim(); });
  in_thread([&] { begin.reset(); });
  in_thread([&] { end.reset(); });
  in_thread([&] { second.reset(); });
  in_thread([&] { gpu.reset(); });
  EXPECT_THAT(contexts(), ElementsAre(1));
}

__global__ void sleep_for(unsigned nanoseconds) {
  const long long begin = clock64();
  while (clock64() - begin < nanoseconds) __nanosleep(1000);
}

using LaunchTime = EmulatorTest;

// As on a GPU, events around a short kernel measure the host, unless earlier work keeps the GPU busy.
TEST_F(LaunchTime, IsMeasuredOnAnIdleStream) {
  Settings settings = emulator::settings();
  settings.launch_ms = 0.010;
  const ScopedSettings scoped(settings);
  Gpu gpu;
  const auto measured = [&](unsigned nanoseconds) {
    CudaEvent begin(0, EventTiming::on), end(0, EventTiming::on);
    gpu.stream.record(begin);
    kernels::launch(gpu.stream, 1, 1, 0, sleep_for, nanoseconds);
    gpu.stream.record(end);
    return elapsed_ms(begin, end);
  };
  EXPECT_NEAR(measured(2000), 0.012, 1e-6) << "the launch, then the kernel";
  EXPECT_NEAR(measured(2000), 0.012, 1e-6) << "the host has waited in between";
  kernels::launch(gpu.stream, 1, 1, 0, sleep_for, 8000);
  EXPECT_NEAR(measured(2000), 0.004, 1e-6) << "the GPU is busy for most of the launch";
  kernels::launch(gpu.stream, 1, 1, 0, sleep_for, 100'000);
  EXPECT_NEAR(measured(2000), 0.002, 1e-6) << "the GPU is busy during the launch";
}

}  // namespace
}  // namespace convoy::emulator
