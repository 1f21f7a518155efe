// Tests of missing barriers, barriers that some threads never reach, and divergent barriers.
#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

using ::testing::HasSubstr;

class Barrier : public EmulatorTest {};

constexpr unsigned kBlock = 256;

struct Exchange {
  float values[kBlock];
};

template <bool kWaits>
__global__ void reverse(const float* x, float* y) {
  auto& shared = kernels::cuda::shared_memory<Exchange>();
  shared.values[threadIdx.x] = x[threadIdx.x];
  if constexpr (kWaits) __syncthreads();
  y[threadIdx.x] = shared.values[kBlock - 1 - threadIdx.x];
}

/// Moves each value by two threads, in two rounds through the same shared memory.
template <bool kWaits>
__global__ void rotate_twice(const float* x, float* y) {
  auto& shared = kernels::cuda::shared_memory<Exchange>();
  float value = x[threadIdx.x];
  for (int round = 0; round < 2; ++round) {
    shared.values[threadIdx.x] = value;
    __syncthreads();
    value = shared.values[(threadIdx.x + 1) % kBlock];
    if constexpr (kWaits) __syncthreads();  // the next round overwrites what other threads still read
  }
  y[threadIdx.x] = value;
}

class MissingBarrier : public EmulatorTest {
 protected:
  /// Returns the number of orders under which the result is not `expected`.
  int wrong_orders(void (*kernel)(const float*, float*), const std::vector<float>& expected) {
    int wrong = 0;
    for_each_order([&] {
      Gpu gpu;
      const Numbers<float> x(gpu, counting<float>(kBlock)), y(gpu, kBlock);
      kernels::launch(gpu.stream, 1, kBlock, sizeof(Exchange), kernel, x.data(), y.data());
      if (y.values() != expected) ++wrong;
    });
    return wrong;
  }
};

TEST_F(MissingBarrier, BetweenWriteAndReadGivesWrongResult) {
  const std::vector<float> x = counting<float>(kBlock);
  const std::vector<float> reversed(x.rbegin(), x.rend());
  EXPECT_EQ(wrong_orders(reverse<true>, reversed), 0);
  EXPECT_EQ(wrong_orders(reverse<false>, reversed), 3);
}

TEST_F(MissingBarrier, BetweenReadAndOverwriteGivesWrongResult) {
  std::vector<float> rotated;
  for (unsigned i = 0; i < kBlock; ++i) rotated.push_back(static_cast<float>((i + 2) % kBlock));
  EXPECT_EQ(wrong_orders(rotate_twice<true>, rotated), 0);
  EXPECT_GE(wrong_orders(rotate_twice<false>, rotated), 1);
}

constexpr int kReturnsLine = __LINE__ + 3;
__global__ void returns_early(unsigned count) {
  if (threadIdx.x >= count) return;
  __syncthreads();
}

TEST_F(Barrier, ReportsThreadsThatReturnedEarly) {
  for_each_order([] {
    EXPECT_EQ(fault_of(1, 64, 0, returns_early, 33u),
              "barrier_test.cpp:" + std::to_string(kReturnsLine) +
                  ": block (0, 0, 0): 33 of 64 threads wait at __syncthreads(), but 31 have ended without "
                  "reaching it; thread (33, 0, 0) has ended");
  });
  EXPECT_EQ(fault_of(1, 64, 0, returns_early, 64u), "");
}

constexpr int kSkipsLine = __LINE__ + 2;
__global__ void one_row_skips() {
  if (blockIdx.y == 0 || threadIdx.y != 2) __syncthreads();
}

TEST_F(Barrier, ReportsThreeDimensionalIndices) {
  EXPECT_EQ(fault_of(dim3(1, 2), dim3(4, 3, 2), 0, one_row_skips),
            "barrier_test.cpp:" + std::to_string(kSkipsLine) +
                ": block (0, 1, 0): 16 of 24 threads wait at __syncthreads(), but 8 have ended without "
                "reaching it; thread (0, 2, 0) has ended");
}

constexpr int kEvenLine = __LINE__ + 3;
__global__ void two_barriers() {
  if (threadIdx.x % 2 == 0) {
    __syncthreads();
  } else {
    __syncthreads();
  }
}

TEST_F(Barrier, ReportsBarriersAtDifferentPlaces) {
  const std::string even = "barrier_test.cpp:" + std::to_string(kEvenLine);
  const std::string odd = "barrier_test.cpp:" + std::to_string(kEvenLine + 2);
  EXPECT_EQ(fault_of(1, 32, 0, two_barriers),
            odd +
                ": block (0, 0, 0), thread (1, 0, 0): __syncthreads() here, while other threads of the block "
                "wait at the one in " +
                even);
  set(with(Order::descending));
  EXPECT_THAT(fault_of(1, 32, 0, two_barriers),
              ::testing::StartsWith(even + ": block (0, 0, 0), thread (30, 0, 0)"));
}

constexpr int kMixedLine = __LINE__ + 3;
__global__ void barrier_or_warp() {
  if (threadIdx.x < 32) {
    __syncthreads();
  } else {
    __syncwarp();
    if (threadIdx.x == 40) return;
    __syncwarp();
  }
}

TEST_F(Barrier, ReportsWhereTheMissingThreadWaits) {
  EXPECT_THAT(fault_of(1, 64, 0, barrier_or_warp),
              HasSubstr("barrier_test.cpp:" + std::to_string(kMixedLine) +
                        ": block (0, 0, 0): 32 of 64 threads wait at __syncthreads(), but 1 have ended "
                        "without reaching it; thread (32, 0, 0) waits at barrier_test.cpp:" +
                        std::to_string(kMixedLine + 4)));
}

/// Counts the live objects of this type.
struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
  static inline int alive = 0;
};

__global__ void holds_objects(unsigned count) {
  const Counted here;
  if (threadIdx.x < count) __syncthreads();
}

TEST_F(Barrier, UnwindsWaitingThreadsAfterFault) {
  EXPECT_NE(fault_of(1, 64, 0, holds_objects, 63u), "");
  EXPECT_EQ(Counted::alive, 0);
  EXPECT_EQ(fault_of(1, 64, 0, holds_objects, 64u), "") << "the next kernel is not affected";
}

}  // namespace
}  // namespace convoy::emulator
