// The fixture for tests of the emulator: GPUs, arrays in device memory, and execution orders.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "convoy/kernels/cuda/primitives/launch.h"
#include "convoy/kernels/runtime/cuda/device.h"
#include "convoy/kernels/runtime/cuda/stream.h"
#include "emulator/runtime/emulator.h"

namespace convoy::emulator {

/// An emulated GPU with an allocator that neither caches nor rounds, and a stream.
struct Gpu {
  explicit Gpu(int index = 0)
      : memory(cuda_memory(index), 0, CachingAllocator::Policy::exact), stream(index, memory) {}

  CachingAllocator memory;
  CudaStream stream;
};

/// An array in device memory. It ends at the end of its block, so any access past it is reported.
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
  /// Blocks until the stream is idle, and returns the values.
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

/// Returns 0, 1, …, count - 1.
template <class T>
std::vector<T> counting(std::size_t count) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i) values.push_back(static_cast<T>(i));
  return values;
}

/// Replaces this process by the same program with name=value in its environment, which runs the tests of
/// `filter`.
inline void run_again(const char* filter, const char* name, const char* value) {
  setenv(name, value, 1);
  const std::string tests = std::string("--gtest_filter=") + filter;
  execl("/proc/self/exe", "emulator_test", tests.c_str(), "--gtest_catch_exceptions=0", nullptr);
}

/// A test with two GPUs, eager streams and ascending threads, unless it changes the settings. The test fails
/// if a report is left at its end.
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

  /// Calls `f` under each order of threads and blocks.
  template <class F>
  void for_each_order(F&& f) {
    for (const Order order : {Order::ascending, Order::descending, Order::random}) {
      SCOPED_TRACE("order " + std::to_string(static_cast<int>(order)));
      const ScopedSettings settings(with(order));
      f();
    }
  }

  static constexpr std::uint64_t kSeeds = 20;

  /// Returns the number of random stream orders under which f() returns false.
  template <class F>
  std::uint64_t wrong_seeds(F&& f) {
    std::uint64_t wrong = 0;
    for (std::uint64_t seed = 0; seed < kSeeds; ++seed) {
      const ScopedSettings settings(with(Streams::random, seed));
      if (!f()) ++wrong;
    }
    return wrong;
  }

  /// Launches `kernel` and returns its report.
  template <class... Parameters>
  static std::string fault_of(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(Parameters...),
                              std::type_identity_t<Parameters>... arguments) {
    {
      Gpu gpu;
      kernels::launch(gpu.stream, grid, block, shared_bytes, kernel, arguments...);
    }
    const std::string what = report();
    reset();
    return what;
  }

 private:
  Settings before_ = settings();
};

}  // namespace convoy::emulator
