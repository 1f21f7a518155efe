// Tests of invalid memory accesses, which end the process with a sanitizer report, and of uninitialized
// memory.
#include <cmath>
#include <string_view>

#include "convoy/kernels/cuda/primitives/element.h"
#include "emulator/runtime/sanitizer.h"
#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

class WrongAccess : public EmulatorTest {
 protected:
  void SetUp() override {
    EmulatorTest::SetUp();
    if (!kGuarded) GTEST_SKIP() << "needs a build with AddressSanitizer";
  }
};

__global__ void add_one(float* x, std::int64_t count) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) x[i] += 1;
}

TEST_F(WrongAccess, PastTheEnd) {
  Gpu gpu;
  const Numbers<float> x(gpu, counting<float>(33));
  kernels::launch(gpu.stream, 2, 32, 0, add_one, x.data(), 33);
  EXPECT_EQ(x.values()[32], 33);
  EXPECT_DEATH(kernels::launch(gpu.stream, 2, 32, 0, add_one, x.data(), 34), "heap-buffer-overflow");
}

TEST_F(WrongAccess, BeforeTheStart) {
  Gpu gpu;
  const Numbers<float> x(gpu, counting<float>(33));
  EXPECT_DEATH(kernels::launch(gpu.stream, 1, 32, 0, add_one, x.data() - 1, 33), "heap-buffer-overflow");
}

TEST_F(WrongAccess, FreedMemory) {
  Gpu gpu;
  float* const x = Numbers<float>(gpu, 33).data();
  EXPECT_DEATH(kernels::launch(gpu.stream, 1, 32, 0, add_one, x, 32), "heap-use-after-free");
}

TEST_F(WrongAccess, DeviceMemoryFromHostCode) {
  Gpu gpu;
  const Numbers<float> x(gpu, counting<float>(4));
  EXPECT_DEATH(x.data()[0] += 1, "use-after-poison");
}

TEST_F(WrongAccess, MemoryOfAnotherGpu) {
  Gpu gpu(0), other(1);
  const Numbers<float> x(other, counting<float>(4));
  kernels::launch(other.stream, 1, 4, 0, add_one, x.data(), 4);
  EXPECT_DEATH(kernels::launch(gpu.stream, 1, 4, 0, add_one, x.data(), 4), "use-after-poison");
}

TEST_F(WrongAccess, CopyLargerThanItsBlock) {
  Gpu gpu;
  const Numbers<char> x(gpu, 100);
  const std::vector<char> host(101);
  EXPECT_DEATH(cudaMemcpyAsync(x.data(), host.data(), 101, cudaMemcpyDefault, gpu.stream.handle()),
               "heap-buffer-overflow");
}

struct Row {
  float values[32];
};

__global__ void fill_shared(unsigned count, float* y) {
  auto& row = kernels::cuda::shared_memory<Row>();
  if (threadIdx.x < count) row.values[threadIdx.x] = 1;
  __syncthreads();
  y[threadIdx.x] = row.values[0];
}

TEST_F(WrongAccess, SharedMemoryThatWasNotRequested) {
  Gpu gpu;
  const Numbers<float> y(gpu, 32);
  kernels::launch(gpu.stream, 1, 32, sizeof(Row), fill_shared, 32u, y.data());
  kernels::launch(gpu.stream, 1, 32, sizeof(Row) - sizeof(float), fill_shared, 31u, y.data());
  EXPECT_DEATH(kernels::launch(gpu.stream, 1, 32, sizeof(Row) - sizeof(float), fill_shared, 32u, y.data()),
               "use-after-poison");
}

struct Whole {
  float values[kDefaultSharedBytes / sizeof(float) + 1];  // one more element than the maximum
};

__global__ void write_shared_at(unsigned index) {
  // Through a pointer, so that the bounds of the struct's array are not checked.
  float* const all = kernels::cuda::shared_memory<Whole>().values;
  all[index] = 1;
}

TEST_F(WrongAccess, SharedMemoryPastTheLastByte) {
  Gpu gpu;
  constexpr unsigned kLast = kDefaultSharedBytes / sizeof(float) - 1;
  kernels::launch(gpu.stream, 1, 1, kDefaultSharedBytes, write_shared_at, kLast);
  EXPECT_DEATH(kernels::launch(gpu.stream, 1, 1, kDefaultSharedBytes, write_shared_at, kLast + 1),
               "use-after-poison");
}

__global__ void copy_packs(const float* x, float* y) {
  kernels::cuda::store_pack(y + 4 * threadIdx.x, kernels::cuda::load_pack<4>(x + 4 * threadIdx.x));
}

TEST_F(WrongAccess, MisalignedVector) {
  if (std::string_view(CONVOY_SANITIZERS).find("undefined") == std::string_view::npos)
    GTEST_SKIP() << "needs a build with UndefinedBehaviorSanitizer";
  Gpu gpu;
  const Numbers<float> x(gpu, counting<float>(65)), y(gpu, 64);
  kernels::launch(gpu.stream, 1, 16, 0, copy_packs, x.data(), y.data());
  EXPECT_EQ(y.values(), counting<float>(64));
  EXPECT_DEATH(kernels::launch(gpu.stream, 1, 16, 0, copy_packs, x.data() + 1, y.data()),
               "misaligned address");
}

class Uninitialized : public EmulatorTest {};

template <class T>
struct Shared {
  T value;
};

/// Reads shared memory that the previous block has written.
template <class T>
__global__ void read_then_write(T* y) {
  auto& shared = kernels::cuda::shared_memory<Shared<T>>();
  y[blockIdx.x] = shared.value;
  shared.value = T{1};
}

template <class T>
void expect_nan() {
  SCOPED_TRACE(to_string(dtype_of<T>));
  Gpu gpu;
  const Numbers<T> uninitialized(gpu, 2), read(gpu, 2);
  kernels::launch(gpu.stream, 2, 1, sizeof(Shared<T>), read_then_write<T>, read.data());
  for (const auto& values : {uninitialized.values(), read.values()})
    for (const T value : values) EXPECT_TRUE(std::isnan(kernels::cuda::widen(value)));
}

TEST_F(Uninitialized, MemoryIsNaNInEveryType) {
  expect_nan<float>();
  expect_nan<double>();
  expect_nan<float16>();
  expect_nan<bfloat16>();
}

TEST_F(Uninitialized, MemoryIsNaNAfterReuse) {
  Gpu gpu;
  for (int i = 0; i < 3; ++i) {
    const Numbers<float> x(gpu, 100);
    for (const float value : x.values()) EXPECT_TRUE(std::isnan(value));
    kernels::launch(gpu.stream, 1, 100, 0, add_one, x.data(), 100);
  }
}

}  // namespace
}  // namespace convoy::emulator
