// A build with CUDA: the same call reaches the CPU's kernel or the GPU's; without a usable GPU, one clear
// line.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <string>
#include <vector>

#include "kernels/elementwise.h"
#include "kernels/runtime/cuda_check.h"
#include "kernels/runtime/cuda_device.h"
#include "kernels/runtime/cuda_stream.h"
#include "kernels/runtime/device.h"

namespace convoy {
namespace {

using ::testing::HasSubstr;

#define SKIP_WITHOUT_GPU() \
  if (cuda_availability().count == 0) GTEST_SKIP() << cuda_availability().reason

std::string error_of(int index, ExitCode& code) {
  try {
    Device::cuda(index);
  } catch (const Error& error) {
    code = error.code();
    return error.what();
  }
  return "no error";
}

/// `count` elements on a device, `offset` elements into their block (views of slices begin anywhere).
template <class T>
class Array {
 public:
  Array(const Device& device, std::int64_t count, std::int64_t offset)
      : device_(device), count_(count), offset_(offset), block_(device.memory().allocate(bytes())) {}
  Array(const Device& device, const std::vector<T>& values, std::int64_t offset)
      : Array(device, static_cast<std::int64_t>(values.size()), offset) {
    copy_bytes(Device::cpu(), ConstView(values.data(), {count_}, dtype_of<T>), device_, view());
  }
  ~Array() { device_.memory().release(block_, bytes()); }
  Array(const Array&) = delete;
  Array& operator=(const Array&) = delete;

  View view() const { return {static_cast<T*>(block_) + offset_, {count_}, dtype_of<T>}; }
  std::vector<T> values() const {
    std::vector<T> out(static_cast<std::size_t>(count_));
    copy_bytes(device_, view(), Device::cpu(), View{out.data(), {count_}, dtype_of<T>});
    return out;
  }

 private:
  std::size_t bytes() const { return static_cast<std::size_t>(count_ + offset_) * sizeof(T); }

  Device device_;
  std::int64_t count_;
  std::int64_t offset_;
  void* block_;
};

/// Both signs, both zeros, and what a diverged training brings.
template <class T>
std::vector<T> inputs(std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>((i * 7919) % 201 - 100) / T{16});
  const T special[] = {T{-0.0}, std::numeric_limits<T>::quiet_NaN(), std::numeric_limits<T>::infinity(),
                       -std::numeric_limits<T>::infinity(), std::numeric_limits<T>::denorm_min()};
  for (std::size_t i = 0; i < std::size(special) && i < values.size(); ++i)
    values[values.size() - 1 - i] = special[i];
  return values;
}

template <class T>
struct ReluResult {
  std::vector<T> y, dx_written, dx_added;
};

template <class T>
ReluResult<T> relu_on(const Device& device, std::int64_t count, std::int64_t offset) {
  const std::vector<T> values = inputs<T>(count);
  const Array<T> x(device, values, offset);
  const Array<T> y(device, count, offset);
  const Array<T> dy(device, std::vector<T>(values.rbegin(), values.rend()), offset);
  const Array<T> written(device, count, offset);
  const Array<T> added(device, std::vector<T>(values.size(), T{3}), offset);
  on(device.stream(), [&](auto& stream) {
    relu_forward(stream, x.view(), y.view());
    relu_backward(stream, dy.view(), y.view(), GradView(written.view(), Mode::write));
    relu_backward(stream, dy.view(), y.view(), GradView(added.view(), Mode::add));
  });
  return {.y = y.values(), .dx_written = written.values(), .dx_added = added.values()};
}

// Equal bits in all but the payload of a NaN: each element is one comparison and at most one sum, rounded
// once.
template <class T>
void expect_same(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (std::isnan(found[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(found[i], expected[i]) << "element " << i << " of " << found.size();
    ASSERT_EQ(std::signbit(found[i]), std::signbit(expected[i])) << "element " << i << " of " << found.size();
  }
}

template <class T>
void compare_devices(std::int64_t count, std::int64_t offset) {
  SCOPED_TRACE(std::string(name_of(dtype_of<T>)) + " [" + std::to_string(count) + "] at " +
               std::to_string(offset));
  const ReluResult<T> cpu = relu_on<T>(Device::cpu(), count, offset);
  const ReluResult<T> gpu = relu_on<T>(Device::cuda(0), count, offset);
  expect_same(gpu.y, cpu.y);
  expect_same(gpu.dx_written, cpu.dx_written);
  expect_same(gpu.dx_added, cpu.dx_added);
}

TEST(CudaDispatch, ReachesTheCpuKernel) {
  EXPECT_THAT(relu_on<float>(Device::cpu(), 3, 0).y, ::testing::SizeIs(3));
  const std::vector<float> values = {-2, 0, 5};
  const Array<float> x(Device::cpu(), values, 0);
  on(Device::cpu().stream(), [&](auto& stream) { relu_forward(stream, x.view(), x.view()); });
  EXPECT_THAT(x.values(), ::testing::ElementsAre(0, 0, 5));
}

TEST(CudaDispatch, GpuEqualsCpuOverTails) {
  SKIP_WITHOUT_GPU();
  for (const std::int64_t count : {0, 1, 31, 32, 33, 255, 257, 1'000'003}) {
    compare_devices<float>(count, 0);
    compare_devices<double>(count, 0);
  }
}

TEST(CudaDispatch, GpuEqualsCpuOnMisalignedViews) {
  SKIP_WITHOUT_GPU();
  for (const std::int64_t offset : {1, 2, 3, 5}) {
    compare_devices<float>(1'025, offset);
    compare_devices<double>(1'025, offset);
  }
}

TEST(CudaDispatch, RefusesATypeItDoesNotComputeIn) {
  SKIP_WITHOUT_GPU();
  const Device gpu = Device::cuda(0);
  const Array<std::int32_t> x(gpu, 8, 0);
  EXPECT_THROW(on(gpu.stream(), [&](auto& stream) { relu_forward(stream, x.view(), x.view()); }), UsageError);
}

TEST(CudaDevice, WithoutADriverSaysSo) {
  int driver_version = 0;
  if (cudaDriverGetVersion(&driver_version) == cudaSuccess && driver_version > 0)
    GTEST_SKIP() << "there is a driver";
  ExitCode code{};
  EXPECT_EQ(error_of(0, code), "cuda:0: no NVIDIA driver on this machine; use --device cpu, or install one");
  EXPECT_EQ(code, ExitCode::device);
  EXPECT_EQ(static_cast<int>(code), 7);
  EXPECT_EQ(Device::parse("auto").name(), "cpu");
  EXPECT_EQ(Device::best(3).name(), "cpu");
  EXPECT_THROW(Device::parse("cuda:1"), DeviceError);
}

TEST(CudaDevice, AnIndexThatIsNotThere) {
  SKIP_WITHOUT_GPU();
  const int count = cuda_availability().count;
  ExitCode code{};
  EXPECT_THAT(error_of(count, code), HasSubstr("no such GPU; this process sees " + std::to_string(count)));
  EXPECT_EQ(code, ExitCode::device);
  EXPECT_EQ(Device::parse("auto").name(), "cuda:0");
}

TEST(CudaDevice, ExplainsEveryWayToHaveNone) {
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

TEST(CudaCheck, NamesTheCallAndItsPlace) {
  EXPECT_NO_THROW(CUDA_CHECK(cudaSuccess));
  try {
    CUDA_CHECK(cudaError_t{cudaErrorInvalidValue});
    FAIL() << "no error";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("cudaError_t{cudaErrorInvalidValue} failed: invalid argument"));
    EXPECT_THAT(error.what(), HasSubstr("(cudaErrorInvalidValue, cuda_dispatch_test.cpp:"));
  }
}

TEST(CudaStream, EventsOrderTwoStreams) {
  SKIP_WITHOUT_GPU();
  constexpr std::int64_t kCount = std::int64_t{1}
                                  << 24;  // long enough that an unordered reader would be early
  const Device first = Device::cuda(0);
  const Device second = Device::cuda(0);  // a stream and an allocator of its own
  const Array<float> x(first, std::vector<float>(kCount, 1), 0);
  const Array<float> sum(first, std::vector<float>(kCount, 0), 0);
  const Array<float> copy(second, kCount, 0);
  on(first.stream(), [&](auto& stream) {
    for (int i = 0; i < 20; ++i) relu_backward(stream, x.view(), x.view(), GradView(sum.view(), Mode::add));
  });
  copy_bytes(first, sum.view(), second, copy.view());
  EXPECT_EQ(copy.values(), std::vector<float>(kCount, 20));
}

TEST(CudaStream, AnUnrecordedEventIsReached) {
  SKIP_WITHOUT_GPU();
  CachingAllocator memory(cuda_memory(0), 0);
  CudaStream stream(0, memory);
  CudaEvent event(0);
  EXPECT_TRUE(event.reached());
  stream.wait(event);
  stream.record(event);
  event.wait();
  EXPECT_TRUE(event.reached());
}

TEST(CudaMemory, TooMuchIsADeviceErrorAndNothingIsLost) {
  SKIP_WITHOUT_GPU();
  const Device gpu = Device::cuda(0);
  try {
    gpu.memory().allocate(std::size_t{1} << 50);
    FAIL() << "a pebibyte was granted";
  } catch (const DeviceError& error) {
    EXPECT_THAT(error.what(), HasSubstr("out of memory on cuda:0"));
  }
  const ReluResult<float> after = relu_on<float>(gpu, 33, 0);
  expect_same(after.y, relu_on<float>(Device::cpu(), 33, 0).y);
}

}  // namespace
}  // namespace convoy
