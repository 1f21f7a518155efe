// Tests of CUDA graphs: what a capture accepts and rejects, and missing dependencies.
#include <functional>
#include <memory>
#include <thread>

#include "emulator/runtime/sanitizer.h"
#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

struct DestroyExecutable {
  void operator()(cudaGraphExec_t executable) const { CUDA_CHECK(cudaGraphExecDestroy(executable)); }
};
using Executable = std::unique_ptr<EmulatedGraphExec, DestroyExecutable>;

__global__ void add_to_all(float* x, float value) { x[threadIdx.x] += value; }
__global__ void multiply_all(float* x, float factor) { x[threadIdx.x] *= factor; }

void begin(CudaStream& stream, cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
  stream.make_current();
  CUDA_CHECK(cudaStreamBeginCapture(stream.handle(), mode));
}

/// Ends a capture that gives no graph, and returns its error.
cudaError_t failed_end(CudaStream& stream) {
  cudaGraph_t graph = nullptr;
  const cudaError_t status = cudaStreamEndCapture(stream.handle(), &graph);
  EXPECT_EQ(graph, nullptr);
  return status;
}

Executable end(CudaStream& stream) {
  cudaGraph_t graph = nullptr;
  CUDA_CHECK(cudaStreamEndCapture(stream.handle(), &graph));
  cudaGraphExec_t executable = nullptr;
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CUDA_CHECK(cudaGraphDestroy(graph));
  return Executable(executable);
}

void start(const Executable& executable, CudaStream& stream) {
  CUDA_CHECK(cudaGraphLaunch(executable.get(), stream.handle()));
}

cudaStreamCaptureStatus status_of(CudaStream& stream) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  CUDA_CHECK(cudaStreamIsCapturing(stream.handle(), &status));
  return status;
}

class Graph : public EmulatorTest {};

std::vector<float> all(float value) { return std::vector<float>(32, value); }

TEST_F(Graph, RunsOnlyWhenLaunched) {
  Gpu gpu;
  const Numbers<float> x(gpu, all(1));
  begin(gpu.stream);
  EXPECT_EQ(status_of(gpu.stream), cudaStreamCaptureStatusActive);
  float value = 2;
  kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), value);
  value = 3;  // arguments were copied
  kernels::launch(gpu.stream, 1, 32, 0, multiply_all, x.data(), value);
  const Executable graph = end(gpu.stream);
  EXPECT_EQ(status_of(gpu.stream), cudaStreamCaptureStatusNone);
  EXPECT_EQ(x.values(), all(1));
  start(graph, gpu.stream);
  EXPECT_EQ(x.values(), all(9));
  kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), 1.0f);
  start(graph, gpu.stream);
  EXPECT_EQ(x.values(), all(36));
}

TEST_F(Graph, MayBeDestroyedBeforeItsWorkHasRun) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  const Numbers<float> x(gpu, all(1));
  begin(gpu.stream);
  kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), 2.0f);
  start(end(gpu.stream), gpu.stream);
  EXPECT_EQ(x.values(), all(3));
}

TEST_F(Graph, ContainsCopiesAndFills) {
  Gpu gpu;
  const Numbers<float> x(gpu, 32), y(gpu, 32);
  const auto pinned = cuda_pinned_memory(0);
  auto* const staged = static_cast<float*>(pinned->allocate(32 * sizeof(float)));
  begin(gpu.stream);
  CUDA_CHECK(cudaMemsetAsync(x.data(), 0, 32 * sizeof(float), gpu.stream.handle()));
  kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), 2.0f);
  CUDA_CHECK(cudaMemcpyAsync(y.data(), x.data(), 32 * sizeof(float), cudaMemcpyDefault, gpu.stream.handle()));
  CUDA_CHECK(cudaMemcpyAsync(staged, x.data(), 32 * sizeof(float), cudaMemcpyDefault, gpu.stream.handle()));
  const Executable graph = end(gpu.stream);
  for (int i = 0; i < 2; ++i) {
    staged[31] = 0;
    start(graph, gpu.stream);
    EXPECT_EQ(y.values(), all(2)) << "each launch begins with the fill";
    EXPECT_EQ(staged[31], 2);
  }
  EXPECT_EQ(cudaMemsetAsync(x.data(), 0, 33 * sizeof(float), gpu.stream.handle()), cudaErrorInvalidValue);
  pinned->release(staged, 32 * sizeof(float));
}

/// Computes x = (1 + 1) * 3, where another stream multiplies. Returns whether the result is right.
bool result_is_right(bool waits) {
  Gpu gpu;
  CudaStream side(0, gpu.memory);
  const Numbers<float> x(gpu, all(1));
  CudaEvent fork(0), sum(0), scaled(0);
  begin(gpu.stream);
  gpu.stream.record(fork);
  side.wait(fork);
  EXPECT_EQ(status_of(side), cudaStreamCaptureStatusActive);
  kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), 1.0f);
  gpu.stream.record(sum);
  if (waits) side.wait(sum);
  kernels::launch(side, 1, 32, 0, multiply_all, x.data(), 3.0f);
  side.record(scaled);
  gpu.stream.wait(scaled);
  const Executable graph = end(gpu.stream);
  EXPECT_EQ(status_of(side), cudaStreamCaptureStatusNone);
  start(graph, gpu.stream);
  return x.values() == all(6);
}

TEST_F(Graph, MissingDependencyGivesWrongResult) {
  EXPECT_EQ(wrong_seeds([] { return result_is_right(true); }), 0u);
  EXPECT_GT(wrong_seeds([] { return result_is_right(false); }), kSeeds / 4);
  EXPECT_TRUE(result_is_right(false)) << "eager streams hide it";
}

TEST_F(Graph, LaunchesOnSeveralStreamsAreSerialized) {
  EXPECT_EQ(wrong_seeds([] {
              Gpu gpu;
              CudaStream other(0, gpu.memory);
              const Numbers<float> x(gpu, all(1));
              begin(gpu.stream);
              kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), 1.0f);
              kernels::launch(gpu.stream, 1, 32, 0, multiply_all, x.data(), 2.0f);
              const Executable graph = end(gpu.stream);
              start(graph, gpu.stream);
              start(graph, other);
              gpu.stream.synchronize();
              other.synchronize();
              return x.values() == all(10);
            }),
            0u);
}

TEST_F(Graph, RecordsExternalEventsAtEachLaunch) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  CudaEvent mark(0, EventTiming::on), before(0, EventTiming::on);
  gpu.stream.record(before);
  begin(gpu.stream);
  gpu.stream.record_in_replays(mark);
  const Executable graph = end(gpu.stream);
  EXPECT_TRUE(mark.reached()) << "never recorded";
  EXPECT_THROW(elapsed_ms(before, mark), DeviceError);
  double last = 0;
  for (int i = 0; i < 3; ++i) {
    start(graph, gpu.stream);
    EXPECT_FALSE(mark.reached());
    const double now = elapsed_ms(before, mark);
    EXPECT_GT(now, last);
    last = now;
  }
  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  EXPECT_EQ(cudaEventRecordWithFlags(event, gpu.stream.handle(), cudaEventRecordExternal),
            cudaErrorInvalidValue)
      << "not capturing";
  CUDA_CHECK(cudaEventDestroy(event));
}

class WrongCapture : public Graph {
 protected:
  /// Expects that `f` returns `expected` during a capture and invalidates it.
  void expect_invalidates(cudaError_t expected, const std::function<cudaError_t(Gpu&)>& f,
                          cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed) {
    Gpu gpu;
    const Numbers<float> x(gpu, all(1));
    begin(gpu.stream, mode);
    EXPECT_EQ(f(gpu), expected);
    EXPECT_EQ(status_of(gpu.stream), cudaStreamCaptureStatusInvalidated);
    EXPECT_THROW(kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), 1.0f), DeviceError);
    EXPECT_EQ(failed_end(gpu.stream), cudaErrorStreamCaptureInvalidated);
    kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x.data(), 1.0f);
    EXPECT_EQ(x.values(), all(2)) << "the stream still works";
  }
};

TEST_F(WrongCapture, HostWaits) {
  expect_invalidates(cudaErrorStreamCaptureUnsupported,
                     [](Gpu& gpu) { return cudaStreamSynchronize(gpu.stream.handle()); });
  for (cudaError_t (*ask)(cudaEvent_t) : {&cudaEventQuery, &cudaEventSynchronize})
    expect_invalidates(cudaErrorCapturedEvent, [ask](Gpu& gpu) {
      cudaEvent_t event = nullptr;
      CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
      CUDA_CHECK(cudaEventRecord(event, gpu.stream.handle()));
      const cudaError_t status = ask(event);
      CUDA_CHECK(cudaEventDestroy(event));
      return status;
    });
}

TEST_F(WrongCapture, SynchronousCopies) {
  std::vector<float> host(32);
  expect_invalidates(cudaErrorStreamCaptureUnsupported, [&](Gpu& gpu) {
    const Numbers<float> x(gpu, 32);
    const cudaError_t status =
        cudaMemcpyAsync(x.data(), host.data(), 32 * sizeof(float), cudaMemcpyDefault, gpu.stream.handle());
    cudaGetLastError();
    return status;
  });
}

TEST_F(WrongCapture, FreedMemory) {
  void* block = nullptr;
  expect_invalidates(cudaErrorStreamCaptureUnsupported, [&](Gpu&) {
    CUDA_CHECK(cudaMalloc(&block, 100));
    return cudaFree(block);
  });
  EXPECT_EQ(cudaFree(block), cudaSuccess) << "it was not freed";
  CUDA_CHECK(cudaHostAlloc(&block, 100, cudaHostAllocDefault));
  expect_invalidates(cudaErrorStreamCaptureUnsupported, [&](Gpu&) { return cudaFreeHost(block); });
  EXPECT_EQ(cudaFreeHost(block), cudaSuccess);
}

TEST_F(WrongCapture, AllocationsDependOnTheMode) {
  void* block = nullptr;
  const auto allocate = [&](Gpu&) { return cudaMalloc(&block, 100); };
  const auto pin = [&](Gpu&) { return cudaHostAlloc(&block, 100, cudaHostAllocDefault); };
  const auto elsewhere = [&](Gpu&) {
    cudaError_t status = cudaSuccess;
    std::thread([&] { status = cudaMalloc(&block, 100); }).join();
    return status;
  };
  expect_invalidates(cudaErrorStreamCaptureUnsupported, allocate, cudaStreamCaptureModeGlobal);
  expect_invalidates(cudaErrorStreamCaptureUnsupported, elsewhere, cudaStreamCaptureModeGlobal);
  expect_invalidates(cudaErrorStreamCaptureUnsupported, allocate, cudaStreamCaptureModeThreadLocal);
  expect_invalidates(cudaErrorStreamCaptureUnsupported, pin, cudaStreamCaptureModeThreadLocal);
  for (const auto mode : {cudaStreamCaptureModeThreadLocal, cudaStreamCaptureModeRelaxed}) {
    Gpu gpu;
    begin(gpu.stream, mode);
    EXPECT_EQ(elsewhere(gpu), cudaSuccess);
    const auto graph = end(gpu.stream);
    EXPECT_EQ(cudaFree(block), cudaSuccess);
  }
}

TEST_F(WrongCapture, GraphLaunch) {
  expect_invalidates(cudaErrorStreamCaptureUnsupported, [](Gpu& gpu) {
    CudaStream other(0, gpu.memory);
    begin(other);
    const Executable graph = end(other);
    return cudaGraphLaunch(graph.get(), gpu.stream.handle());
  });
}

TEST_F(WrongCapture, WaitForUncapturedWork) {
  CudaEvent event(0);
  expect_invalidates(cudaErrorStreamCaptureIsolation, [&](Gpu& gpu) {
    CudaStream other(0, gpu.memory);
    other.record(event);
    EXPECT_THROW(gpu.stream.wait(event), CaptureError);
    return cudaGetLastError();
  });
}

TEST_F(WrongCapture, EventOfAnEndedCapture) {
  Gpu gpu;
  CudaEvent event(0);
  begin(gpu.stream);
  gpu.stream.record(event);
  const Executable graph = end(gpu.stream);
  EXPECT_THROW(event.reached(), CaptureError);
  EXPECT_THROW(event.wait(), CaptureError);
  EXPECT_THROW(gpu.stream.wait(event), CaptureError);
  expect_invalidates(cudaErrorCapturedEvent, [&](Gpu& other) {
    EXPECT_THROW(other.stream.wait(event), CaptureError);
    return cudaGetLastError();
  });
  gpu.stream.record(event);
  event.wait();
}

TEST_F(WrongCapture, UnjoinedWork) {
  Gpu gpu;
  CudaStream side(0, gpu.memory);
  const Numbers<float> x(gpu, all(1));
  CudaEvent fork(0), join(0);
  const auto capture = [&](bool works, bool joins) {
    begin(gpu.stream);
    gpu.stream.record(fork);
    side.wait(fork);
    if (works) kernels::launch(side, 1, 32, 0, add_to_all, x.data(), 1.0f);
    side.record(join);
    if (joins) gpu.stream.wait(join);
  };
  capture(true, false);
  EXPECT_EQ(failed_end(gpu.stream), cudaErrorStreamCaptureUnjoined);
  EXPECT_EQ(status_of(side), cudaStreamCaptureStatusNone);
  capture(true, true);
  start(end(gpu.stream), gpu.stream);
  EXPECT_EQ(x.values(), all(2));
  capture(false, false);
  EXPECT_NE(end(gpu.stream), nullptr) << "a stream that joined without work";
}

TEST_F(WrongCapture, MergeOfTwoCaptures) {
  Gpu gpu;
  CudaStream other(0, gpu.memory);
  CudaEvent event(0);
  begin(gpu.stream);
  begin(other);
  other.record(event);
  EXPECT_THROW(gpu.stream.wait(event), CaptureError);
  EXPECT_EQ(cudaGetLastError(), cudaErrorStreamCaptureMerge);
  EXPECT_EQ(failed_end(gpu.stream), cudaErrorStreamCaptureInvalidated);
  EXPECT_EQ(failed_end(other), cudaErrorStreamCaptureInvalidated);
}

TEST_F(WrongCapture, UnmatchedBeginAndEnd) {
  Gpu gpu;
  CudaStream side(0, gpu.memory);
  CudaEvent fork(0);
  EXPECT_EQ(failed_end(gpu.stream), cudaErrorIllegalState);
  begin(gpu.stream);
  EXPECT_EQ(cudaStreamBeginCapture(gpu.stream.handle(), cudaStreamCaptureModeRelaxed), cudaErrorIllegalState);
  gpu.stream.record(fork);
  side.wait(fork);
  EXPECT_EQ(failed_end(side), cudaErrorStreamCaptureUnmatched);
  EXPECT_EQ(failed_end(gpu.stream), cudaErrorStreamCaptureInvalidated);

  begin(gpu.stream, cudaStreamCaptureModeThreadLocal);
  std::thread([&] { EXPECT_EQ(failed_end(gpu.stream), cudaErrorStreamCaptureWrongThread); }).join();
  EXPECT_EQ(failed_end(gpu.stream), cudaErrorStreamCaptureInvalidated);
  begin(gpu.stream);
  std::thread([&] {
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(gpu.stream.handle(), &graph), cudaSuccess);
    EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
  }).join();
}

TEST_F(WrongCapture, DestroyedStream) {
  Gpu gpu;
  auto side = std::make_unique<CudaStream>(0, gpu.memory);
  CudaEvent fork(0);
  const auto capture = [&](CudaStream& from, CudaStream& to) {
    begin(from);
    from.record(fork);
    to.wait(fork);
  };
  capture(gpu.stream, *side);
  side.reset();
  EXPECT_EQ(failed_end(gpu.stream), cudaErrorStreamCaptureInvalidated);
  side = std::make_unique<CudaStream>(0, gpu.memory);
  capture(*side, gpu.stream);
  side.reset();
  EXPECT_EQ(status_of(gpu.stream), cudaStreamCaptureStatusNone);
}

TEST_F(WrongCapture, InvalidHandles) {
  CUDA_CHECK(cudaSetDevice(0));
  cudaGraphExec_t executable = nullptr;
  EXPECT_EQ(cudaGraphInstantiate(&executable, nullptr, 0), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphDestroy(nullptr), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphExecDestroy(nullptr), cudaErrorInvalidValue);
  Gpu gpu;
  EXPECT_EQ(cudaGraphLaunch(nullptr, gpu.stream.handle()), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGraphUpload(nullptr, gpu.stream.handle()), cudaErrorInvalidValue);
}

TEST_F(WrongCapture, MemoryFreedBeforeLaunch) {
  if (!kGuarded) GTEST_SKIP() << "needs a build with AddressSanitizer";
  Gpu gpu;
  auto x = std::make_unique<Numbers<float>>(gpu, all(1));
  begin(gpu.stream);
  kernels::launch(gpu.stream, 1, 32, 0, add_to_all, x->data(), 1.0f);
  const Executable graph = end(gpu.stream);
  start(graph, gpu.stream);
  x.reset();
  EXPECT_DEATH(start(graph, gpu.stream), "heap-use-after-free");
}

}  // namespace
}  // namespace convoy::emulator
