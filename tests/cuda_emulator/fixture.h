// Small kernels on an emulated GPU, for the tests of the emulator itself.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kernels/cuda/launch.h"
#include "kernels/runtime/cuda_device.h"
#include "kernels/runtime/cuda_stream.h"
#include "tests/cuda_emulator/emulator.h"

namespace convoy::emulator {

/// A GPU's memory, block for block as it is asked for, and a stream.
struct Gpu {
  explicit Gpu(int index = 0)
      : memory(cuda_memory(index), 0, CachingAllocator::Policy::exact), stream(index, memory) {}

  CachingAllocator memory;
  CudaStream stream;
};

/// Numbers in a GPU's memory that end where their block ends.
template <class T>
class Numbers {
 public:
  Numbers(Gpu& gpu, std::size_t count)
      : gpu_(gpu), count_(count), data_(static_cast<T*>(gpu.memory.allocate(count * sizeof(T)))) {}
  Numbers(Gpu& gpu, const std::vector<T>& values) : Numbers(gpu, values.size()) {
    copy(data_, values.data());
  }
  ~Numbers() { gpu_.memory.release(data_, count_ * sizeof(T)); }
  Numbers(const Numbers&) = delete;
  Numbers& operator=(const Numbers&) = delete;

  T* data() const { return data_; }
  /// Waits for the stream.
  std::vector<T> values() const {
    std::vector<T> result(count_);
    copy(result.data(), data_);
    return result;
  }

 private:
  void copy(T* to, const T* from) const {
    gpu_.stream.make_current();
    CUDA_CHECK(cudaMemcpyAsync(to, from, count_ * sizeof(T), cudaMemcpyDefault, gpu_.stream.handle()));
    gpu_.stream.synchronize();
  }

  Gpu& gpu_;
  std::size_t count_;
  T* data_;
};

/// 0, 1, …, count - 1.
template <class T>
std::vector<T> counting(std::size_t count) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(i));
  return values;
}

/// Two GPUs whose work runs at once, in ascending order, unless a test wants it otherwise. A fault that a
/// test did not take is a failure.
class EmulatorTest : public ::testing::Test {
 protected:
  static constexpr Settings kTwoGpus{.gpus = 2, .driver_version = CUDART_VERSION};

  void SetUp() override {
    reset();
    set(kTwoGpus);
  }
  void TearDown() override {
    EXPECT_EQ(report(), "");
    reset();
    set(before_);
  }

  static Settings with(Order order) {
    Settings result = kTwoGpus;
    result.order = order;
    return result;
  }
  static Settings with(Streams streams, std::uint64_t seed) {
    Settings result = kTwoGpus;
    result.streams = streams;
    result.seed = seed;
    return result;
  }

  /// f under each order of threads and blocks.
  template <class F>
  void for_each_order(F&& f) {
    for (const Order order : {Order::ascending, Order::descending, Order::random}) {
      SCOPED_TRACE("order " + std::to_string(static_cast<int>(order)));
      const ScopedSettings settings(with(order));
      f();
    }
  }

  /// What is reported of a launch.
  template <class... Parameters>
  static std::string fault_of(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(Parameters...),
                              std::type_identity_t<Parameters>... arguments) {
    {
      Gpu gpu;
      launch(gpu.stream, grid, block, shared_bytes, kernel, arguments...);
    }
    const std::string what = report();
    reset();
    return what;
  }

 private:
  Settings before_ = settings();
};

}  // namespace convoy::emulator
