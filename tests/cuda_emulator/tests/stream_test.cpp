// Tests of streams and events: missing waits, host memory that is reused too early, and invalid handles.
#include <numeric>

#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

class StreamOrder : public EmulatorTest {};

__global__ void add_to_each(float* x, float value) { x[threadIdx.x] += value; }

void copy_on(CudaStream& stream, void* to, const void* from, std::size_t bytes) {
  stream.make_current();
  CUDA_CHECK(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream.handle()));
}

/// Runs ten additions on one stream and reads the sum on another. Returns whether the sum is right.
bool other_stream_reads_sum(bool waits) {
  Gpu gpu;
  CudaStream other(0, gpu.memory);
  const Numbers<float> x(gpu, std::vector<float>(32, 0)), y(gpu, 32);
  CudaEvent done(0);
  for (int i = 0; i < 10; ++i) kernels::launch(gpu.stream, 1, 32, 0, add_to_each, x.data(), 1.0f);
  gpu.stream.record(done);
  if (waits) other.wait(done);
  copy_on(other, y.data(), x.data(), 32 * sizeof(float));
  other.synchronize();
  return y.values() == std::vector<float>(32, 10);
}

TEST_F(StreamOrder, MissingWaitGivesWrongResult) {
  EXPECT_EQ(wrong_seeds([] { return other_stream_reads_sum(true); }), 0u);
  EXPECT_GT(wrong_seeds([] { return other_stream_reads_sum(false); }), kSeeds / 2);
  EXPECT_TRUE(other_stream_reads_sum(false)) << "eager streams hide it";
}

/// Reuses staging memory after the stream that copies from it was destroyed. Returns whether the copy is
/// right.
bool copy_of_destroyed_stream_is_right(bool waits) {
  Gpu gpu;
  const auto pinned = cuda_pinned_memory(0);
  auto* const staged = static_cast<float*>(pinned->allocate(32 * sizeof(float)));
  const Numbers<float> x(gpu, 32);
  std::fill_n(staged, 32, 1.0f);
  {
    CudaStream other(0, gpu.memory);
    copy_on(other, x.data(), staged, 32 * sizeof(float));
    if (waits) other.synchronize();
  }
  std::fill_n(staged, 32, 2.0f);
  const bool is_right = x.values() == std::vector<float>(32, 1);
  pinned->release(staged, 32 * sizeof(float));
  return is_right;
}

TEST_F(StreamOrder, DestroyedStreamIsNotWaitedFor) {
  EXPECT_EQ(wrong_seeds([] { return copy_of_destroyed_stream_is_right(true); }), 0u);
  EXPECT_EQ(wrong_seeds([] { return copy_of_destroyed_stream_is_right(false); }), kSeeds);
  EXPECT_TRUE(copy_of_destroyed_stream_is_right(false)) << "eager streams hide it";
}

/// Uses one staging buffer for two copies. Returns whether both are right.
bool both_copies_are_right(bool waits) {
  Gpu gpu;
  const auto pinned = cuda_pinned_memory(0);
  auto* const staged = static_cast<float*>(pinned->allocate(32 * sizeof(float)));
  const Numbers<float> first(gpu, 32), second(gpu, 32);
  CudaEvent copied(0);
  std::fill_n(staged, 32, 1.0f);
  copy_on(gpu.stream, first.data(), staged, 32 * sizeof(float));
  gpu.stream.record(copied);
  if (waits) copied.wait();
  std::fill_n(staged, 32, 2.0f);
  copy_on(gpu.stream, second.data(), staged, 32 * sizeof(float));
  gpu.stream.synchronize();
  pinned->release(staged, 32 * sizeof(float));
  return first.values() == std::vector<float>(32, 1) && second.values() == std::vector<float>(32, 2);
}

TEST_F(StreamOrder, PinnedMemoryReusedTooEarlyGivesWrongResult) {
  EXPECT_EQ(wrong_seeds([] { return both_copies_are_right(true); }), 0u);
  EXPECT_EQ(wrong_seeds([] { return both_copies_are_right(false); }), kSeeds);
}

TEST_F(StreamOrder, PageableMemoryIsReadBeforeTheCallReturns) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  std::vector<float> host(32, 1);
  const Numbers<float> x(gpu, 32);
  copy_on(gpu.stream, x.data(), host.data(), 32 * sizeof(float));
  std::fill(host.begin(), host.end(), 2.0f);
  EXPECT_EQ(x.values(), std::vector<float>(32, 1));
}

TEST_F(StreamOrder, QueuedWorkStartsWhenTheHostWaits) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  const Numbers<float> x(gpu, std::vector<float>(32, 0));
  CudaEvent before(0), after(0);
  gpu.stream.record(before);
  kernels::launch(gpu.stream, 1, 32, 0, add_to_each, x.data(), 1.0f);
  gpu.stream.record(after);
  EXPECT_FALSE(before.reached());
  before.wait();
  EXPECT_FALSE(after.reached());
  gpu.memory.release(gpu.memory.allocate(100), 100);
  EXPECT_FALSE(after.reached()) << "freeing memory imposes no order";
  gpu.stream.synchronize();
  EXPECT_TRUE(after.reached());
}

TEST_F(StreamOrder, FreedMemoryIsKeptForQueuedWork) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  const Numbers<float> y(gpu, 32);
  {
    const Numbers<float> x(gpu, std::vector<float>(32, 3));
    copy_on(gpu.stream, y.data(), x.data(), 32 * sizeof(float));
  }
  EXPECT_EQ(y.values(), std::vector<float>(32, 3));
}

TEST_F(StreamOrder, EventRefersToItsLatestRecording) {
  const ScopedSettings settings(with(Streams::random, 1));
  Gpu gpu;
  CudaStream other(0, gpu.memory);
  const Numbers<float> x(gpu, std::vector<float>(32, 0)), y(gpu, 32);
  CudaEvent point(0);
  gpu.stream.record(point);
  other.wait(point);  // waits for the first recording, not for later ones
  kernels::launch(gpu.stream, 1, 32, 0, add_to_each, x.data(), 1.0f);
  gpu.stream.record(point);
  other.synchronize();
  EXPECT_FALSE(point.reached());
  point.wait();
  EXPECT_EQ(x.values(), std::vector<float>(32, 1));
}

__global__ void record_turn(int* next, int* order) {
  order[atomicAdd(next, 1)] = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
}

std::vector<int> order_of_threads() {
  Gpu gpu;
  const Numbers<int> next(gpu, std::vector<int>{0}), order(gpu, 96);
  kernels::launch(gpu.stream, 3, 32, 0, record_turn, next.data(), order.data());
  return order.values();
}

class ThreadOrder : public EmulatorTest {};

TEST_F(ThreadOrder, FollowsTheSettings) {
  std::vector<int> expected = counting<int>(96);
  EXPECT_EQ(order_of_threads(), expected);
  std::reverse(expected.begin(), expected.end());
  set(with(Order::descending));
  EXPECT_EQ(order_of_threads(), expected);
}

TEST_F(ThreadOrder, IsRepeatableForASeed) {
  Settings random = with(Order::random);
  const auto order = [&](std::uint64_t seed) {
    random.seed = seed;
    set(random);
    return order_of_threads();
  };
  const std::vector<int> first = order(1);
  EXPECT_NE(first, order(2));
  EXPECT_EQ(first, order(1));
}

class Handles : public EmulatorTest {};

TEST_F(Handles, ThatAreInvalidAreErrors) {
  CUDA_CHECK(cudaSetDevice(0));
  cudaStream_t stream = nullptr;
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle) << "there is no stream 0";
  CUDA_CHECK(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, 0));
  CUDA_CHECK(cudaStreamDestroy(stream));
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidResourceHandle);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);

  cudaEvent_t event = nullptr;
  CUDA_CHECK(cudaEventCreateWithFlags(&event, cudaEventDefault));
  float elapsed = 0;
  EXPECT_EQ(cudaEventElapsedTime(&elapsed, event, event), cudaErrorInvalidResourceHandle) << "never recorded";
  CUDA_CHECK(cudaEventDestroy(event));
  EXPECT_EQ(cudaEventQuery(event), cudaErrorInvalidResourceHandle);
  EXPECT_NE(cudaEventDestroy(event), cudaSuccess);
}

TEST_F(Handles, OfDeviceAndPinnedMemoryAreDistinct) {
  CUDA_CHECK(cudaSetDevice(0));
  void* block = nullptr;
  CUDA_CHECK(cudaMalloc(&block, 100));
  EXPECT_EQ(cudaFreeHost(block), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFree(block), cudaSuccess);
  EXPECT_EQ(cudaFree(block), cudaErrorInvalidValue);
  CUDA_CHECK(cudaHostAlloc(&block, 100, cudaHostAllocDefault));
  EXPECT_EQ(cudaFree(block), cudaErrorInvalidValue);
  EXPECT_EQ(cudaFreeHost(block), cudaSuccess);
}

}  // namespace
}  // namespace convoy::emulator
