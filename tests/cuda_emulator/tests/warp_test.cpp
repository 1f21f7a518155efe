// Tests of shuffles, votes, atomics and block reductions against known values, and of invalid masks.
#include <functional>
#include <numeric>

#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;

constexpr unsigned kAll = kernels::cuda::kAllLanes;

template <class F, class T>
__global__ void each_lane(F f, T* y) {
  y[threadIdx.x] = f(threadIdx.x);
}

class Warp : public EmulatorTest {
 protected:
  /// Returns f(lane) of all threads of a block, which must be the same under every order.
  template <class F>
  auto lanes(F f, unsigned threads = 32) {
    using T = decltype(f(0u));
    std::vector<T> result;
    for_each_order([&] {
      Gpu gpu;
      const Numbers<T> y(gpu, threads);
      kernels::launch(gpu.stream, 1, threads, 0, each_lane<F, T>, f, y.data());
      const std::vector<T> now = y.values();
      if (result.empty()) result = now;
      EXPECT_EQ(now, result);
    });
    return result;
  }
  template <class F>
  std::string fault(F f, unsigned threads = 32) {
    Gpu gpu;
    const Numbers<int> y(gpu, threads);
    return fault_of(1, threads, 0, each_lane<F, int>, f, y.data());
  }
  static std::vector<int> expected(const std::function<int(int)>& f) {
    std::vector<int> result;
    for (int lane = 0; lane < 32; ++lane) result.push_back(f(lane));
    return result;
  }
};

TEST_F(Warp, ShuffleReadsOneLane) {
  EXPECT_THAT(lanes([](unsigned lane) { return __shfl_sync(kAll, static_cast<int>(lane), 5); }), Each(5));
  EXPECT_THAT(lanes([](unsigned lane) { return __shfl_sync(kAll, static_cast<int>(lane), 37); }), Each(5));
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_sync(kAll, static_cast<int>(lane), 3, 8); }),
            expected([](int lane) { return lane / 8 * 8 + 3; }));
  EXPECT_EQ(lanes([](unsigned lane) {
              return __shfl_sync(kAll, static_cast<int>(lane), 31 - static_cast<int>(lane));
            }),
            expected([](int lane) { return 31 - lane; }));
}

TEST_F(Warp, ShuffleDownStaysInSegment) {
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_down_sync(kAll, static_cast<int>(lane), 3); }),
            expected([](int lane) { return lane < 29 ? lane + 3 : lane; }));
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_down_sync(kAll, static_cast<int>(lane), 3, 16); }),
            expected([](int lane) { return lane % 16 < 13 ? lane + 3 : lane; }));
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_down_sync(kAll, static_cast<int>(lane), ~0u); }),
            expected([](int lane) { return lane; }));
}

TEST_F(Warp, ShuffleUpStaysInSegment) {
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_up_sync(kAll, static_cast<int>(lane), 2); }),
            expected([](int lane) { return lane >= 2 ? lane - 2 : lane; }));
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_up_sync(kAll, static_cast<int>(lane), 2, 4); }),
            expected([](int lane) { return lane % 4 >= 2 ? lane - 2 : lane; }));
}

TEST_F(Warp, ShuffleXorReadsOnlyEarlierSegments) {
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_xor_sync(kAll, static_cast<int>(lane), 5); }),
            expected([](int lane) { return lane ^ 5; }));
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_xor_sync(kAll, static_cast<int>(lane), 1, 2); }),
            expected([](int lane) { return lane ^ 1; }));
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_xor_sync(kAll, static_cast<int>(lane), 16, 16); }),
            expected([](int lane) { return lane < 16 ? lane : lane - 16; }));
}

TEST_F(Warp, ShufflesSupportUpToEightBytes) {
  EXPECT_EQ(lanes([](unsigned lane) { return __shfl_xor_sync(kAll, lane + 0.1, 1); })[6], 7.1);
  EXPECT_EQ(lanes([](unsigned lane) {
              return __shfl_xor_sync(kAll, static_cast<std::int8_t>(-1 - static_cast<int>(lane)), 1);
            })[6],
            -8);
}

TEST_F(Warp, Votes) {
  EXPECT_THAT(lanes([](unsigned lane) { return __ballot_sync(kAll, lane % 4 == 1 || lane == 31); }),
              Each(0xa2222222u));
  EXPECT_THAT(lanes([](unsigned lane) { return __any_sync(kAll, lane == 9); }), Each(1));
  EXPECT_THAT(lanes([](unsigned) { return __any_sync(kAll, 0); }), Each(0));
  EXPECT_THAT(lanes([](unsigned lane) { return __all_sync(kAll, lane < 32); }), Each(1));
  EXPECT_THAT(lanes([](unsigned lane) { return __all_sync(kAll, lane != 9); }), Each(0));
}

TEST_F(Warp, SubsetsOfAWarpConvergeSeparately) {
  EXPECT_EQ(lanes([](unsigned lane) {
              if (lane < 8) return __ballot_sync(0xffu, 2);
              return __ballot_sync(0xffffff00u, lane % 2 == 0);
            }),
            [] {
              std::vector<unsigned> votes(32, 0x55555500u);
              std::fill_n(votes.begin(), 8, 0xffu);
              return votes;
            }());
  EXPECT_THAT(lanes([](unsigned lane) { return __shfl_sync(0xfffffu, static_cast<int>(lane), 19); }, 20),
              Each(19))
      << "a block of 20 threads";
}

struct WarpExchange {
  int values[32];
};

/// Reverses the values of the even lanes and, separately, of the odd lanes.
__global__ void reverse_kinds(int* y) {
  auto& shared = kernels::cuda::shared_memory<WarpExchange>();
  const unsigned mask = threadIdx.x % 2 == 0 ? 0x55555555u : 0xaaaaaaaau;
  shared.values[threadIdx.x] = static_cast<int>(threadIdx.x);
  __syncwarp(mask);
  y[threadIdx.x] = shared.values[(30 + threadIdx.x % 2 * 2 - threadIdx.x) % 32];
}

TEST_F(Warp, SyncwarpWaitsForLanesOfItsMask) {
  for_each_order([&] {
    Gpu gpu;
    const Numbers<int> y(gpu, 32);
    kernels::launch(gpu.stream, 1, 32, sizeof(WarpExchange), reverse_kinds, y.data());
    EXPECT_EQ(y.values(), expected([](int lane) { return lane % 2 == 0 ? 30 - lane : 32 - lane; }));
  });
}

__global__ void count_up(int* sum, unsigned* maximum, unsigned* bits, int* before) {
  const auto thread = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  before[thread] = atomicAdd(sum, 1);
  atomicMax(maximum, static_cast<unsigned>(thread));
  atomicOr(bits, 1u << thread % 32);
  __threadfence();
}

TEST_F(Warp, AtomicsReturnOldValue) {
  for_each_order([] {
    Gpu gpu;
    const Numbers<int> sum(gpu, std::vector<int>{100}), before(gpu, 4 * 96);
    const Numbers<unsigned> maximum(gpu, std::vector<unsigned>{7}), bits(gpu, std::vector<unsigned>{0});
    kernels::launch(gpu.stream, 4, 96, 0, count_up, sum.data(), maximum.data(), bits.data(), before.data());
    EXPECT_EQ(sum.values()[0], 100 + 4 * 96);
    EXPECT_EQ(maximum.values()[0], 4u * 96 - 1);
    EXPECT_EQ(bits.values()[0], ~0u);
    std::vector<int> seen = before.values();
    std::sort(seen.begin(), seen.end());
    std::vector<int> all(4 * 96);
    std::iota(all.begin(), all.end(), 100);
    EXPECT_EQ(seen, all);
  });
  int value = 5;
  EXPECT_EQ(atomicExch(&value, 9), 5);
  EXPECT_EQ(value, 9);
}

TEST_F(Warp, ReportsLaneOutsideItsOwnMask) {
  EXPECT_THAT(fault([](unsigned) { return __shfl_sync(0xfffffffeu, 1, 1); }),
              HasSubstr("block (0, 0, 0), thread (0, 0, 0): lane 0 is not in its own mask"));
}

TEST_F(Warp, ReportsMaskWithNonexistentLanes) {
  EXPECT_THAT(fault([](unsigned) { return __any_sync(kAll, 1); }, 52),
              HasSubstr("thread (32, 0, 0): the mask has lanes that do not exist: the warp has 20 threads"));
}

TEST_F(Warp, ReportsReadOfLaneOutsideMask) {
  EXPECT_THAT(fault([](unsigned lane) { return lane < 16 ? __shfl_sync(0xffffu, 1, 20) : 0; }),
              HasSubstr("thread (0, 0, 0): reads the value of lane 20, which is not in mask 0xffff"));
}

TEST_F(Warp, ReportsLaneThatNeverConverges) {
  EXPECT_THAT(
      fault([](unsigned lane) { return lane != 16 ? __shfl_sync(kAll, 1, 0) : 0; }),
      HasSubstr("thread (0, 0, 0) waits at a warp operation for lane 16 of its mask; thread (16, 0, 0) "
                "has ended"));
  EXPECT_THAT(
      fault([](unsigned lane) { return __any_sync(lane < 16 ? 0xffffu : kAll, 1); }),
      HasSubstr("thread (16, 0, 0) waits at a warp operation for lane 0 of its mask; thread (0, 0, 0) has "
                "ended"))
      << "different masks";
}

TEST_F(Warp, ReportsOperationsAtDifferentPlaces) {
  constexpr int kLine = __LINE__ + 3;
  const auto either = [](unsigned lane) {
    if (lane % 2 == 0) {
      return __shfl_xor_sync(kAll, 1, 1);
    } else {
      return __shfl_xor_sync(kAll, 2, 1);
    }
  };
  EXPECT_THAT(fault(either),
              HasSubstr("thread (1, 0, 0): a warp operation here, while other lanes of its mask "
                        "wait at the one in warp_test.cpp:" +
                        std::to_string(kLine)));
}

TEST_F(Warp, ReportsWidthThatIsNotAPowerOfTwo) {
  for (const int width : {0, 12, 64, -8})
    EXPECT_THAT(fault([width](unsigned) { return __shfl_down_sync(kAll, 1, 1, width); }),
                HasSubstr("found a width of " + std::to_string(width)));
}

struct Larger {
  template <class T>
  T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

template <int kThreads, class T, class Op>
__global__ void reduce_block(const T* x, T* y) {
  auto& partials = kernels::cuda::shared_memory<kernels::cuda::BlockPartials<T, kThreads>>();
  T value = x[threadIdx.x];
  value = kernels::cuda::block_reduce<kThreads>(value, Op{}, partials);
  y[threadIdx.x] = value;
}

class BlockReduce : public EmulatorTest {
 protected:
  /// Uses integers, so that the result is exact in any order and type.
  template <int kThreads, class T>
  void check() {
    std::vector<T> x;
    for (int i = 0; i < kThreads; ++i) x.push_back(static_cast<T>(i * 7919 % 1009 - 500));
    for_each_order([&] {
      Gpu gpu;
      const Numbers<T> values(gpu, x), result(gpu, kThreads);
      constexpr std::size_t kShared = sizeof(kernels::cuda::BlockPartials<T, kThreads>);
      kernels::launch(gpu.stream, 1, kThreads, kShared, reduce_block<kThreads, T, kernels::cuda::Sum>,
                      values.data(), result.data());
      EXPECT_THAT(result.values(), Each(std::accumulate(x.begin(), x.end(), T{0}))) << kThreads;
      kernels::launch(gpu.stream, 1, kThreads, kShared, reduce_block<kThreads, T, Larger>, values.data(),
                      result.data());
      EXPECT_THAT(result.values(), Each(*std::max_element(x.begin(), x.end()))) << kThreads;
    });
  }
  template <class T>
  void check_sizes() {
    check<32, T>();
    check<64, T>();
    check<256, T>();
    check<1024, T>();
  }
};

TEST_F(BlockReduce, OfFloats) { check_sizes<float>(); }
TEST_F(BlockReduce, OfDoubles) { check_sizes<double>(); }
TEST_F(BlockReduce, OfIntegers) { check_sizes<std::int32_t>(); }

}  // namespace
}  // namespace convoy::emulator
