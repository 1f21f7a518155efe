// Tests of mbarriers, named barriers, setmaxnreg and matrices in shared memory: a ring of stages that one warpgroup
// fills and another one multiplies, and each mistake in it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "tests/cuda_emulator/tests/fixture.h"
#include "tests/cuda_emulator/tests/hopper.h"

namespace convoy::emulator {
namespace {

namespace cuda = kernels::cuda;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr int kRows = 64, kColumns = 72, kDepth = 16, kStages = 2, kRounds = 5, kWarpgroup = 128;
constexpr unsigned kRowBytes = 16, kTurn = 1;
// Planes [row or column][16 bytes] of 8 elements along k.
constexpr unsigned kPlaneA = kRows * kRowBytes, kPlaneB = kColumns * kRowBytes;

enum class Mistake {
  none,
  wrong_parity,
  missing_arrival,
  no_wait_for_copies,
  arrival_before_copies,
  free_before_the_wait,
  no_wait_for_readers,
  no_proxy_fence,
  barrier_is_not_initialized,
  no_barrier_after_initialization,
  too_few_arrivals_at_named_barrier,
  another_count_at_named_barrier,
  count_is_not_of_warps,
  left_over_arrival,
  another_matrix_in_a_warp,
};

struct Shared {
  unsigned char a[kStages][2 * kPlaneA], b[kStages][2 * kPlaneB];
  cuda::Mbarrier full[kStages], free[kStages], unused;
};

/// Copies 16 bytes for each row or column and half of k. x [rows, kDepth] is row-major.
template <class T>
__device__ void copy_matrix(const T* x, int rows, unsigned char* to) {
  for (int i = static_cast<int>(threadIdx.x); i < 2 * rows; i += kWarpgroup)
    cuda::copy_async(to + i % 2 * rows * static_cast<int>(kRowBytes) + i / 2 * static_cast<int>(kRowBytes),
                     x + i / 2 * kDepth + i % 2 * 8, true);
}

/// With kTransposed, x is [kDepth, kRows], and rows of 16 bytes are 8 rows of a.
template <class T>
__device__ void copy_transposed(const T* x, unsigned char* to) {
  const int i = static_cast<int>(threadIdx.x);  // 16 rows of 8 chunks
  cuda::copy_async(to + i % 8 * kDepth * static_cast<int>(kRowBytes) + i / 8 * static_cast<int>(kRowBytes),
                   x + i / 8 * kRows + i % 8 * 8, true);
}

/// Computes d [64, 72], the sum of kRounds products of a [round][64, 16] and b [round][72, 16].
template <class T, bool kTransposed>
__global__ void multiply_ring(Mistake mistake, const T* a, const T* b, float* d) {
  auto& shared = cuda::shared_memory<Shared>();
  const auto is = [&](Mistake which) { return mistake == which; };
  if (threadIdx.x == 0)
    for (int stage = 0; stage < kStages; ++stage) {
      shared.full[stage].initialize(kWarpgroup);
      shared.free[stage].initialize(4);
    }
  if (!is(Mistake::no_barrier_after_initialization)) __syncthreads();
  if (threadIdx.x < kWarpgroup) {
    cuda::release_registers<40>();
    if (is(Mistake::barrier_is_not_initialized)) shared.unused.arrive();
    for (int round = 0; round < kRounds; ++round) {
      const int stage = round % kStages;
      const auto parity = static_cast<unsigned>(round / kStages % 2);
      if (!is(Mistake::no_wait_for_readers)) shared.free[stage].wait(parity ^ 1);
      if constexpr (kTransposed)
        copy_transposed(a + round * kRows * kDepth, shared.a[stage]);
      else
        copy_matrix(a + round * kRows * kDepth, kRows, shared.a[stage]);
      copy_matrix(b + round * kColumns * kDepth, kColumns, shared.b[stage]);
      if (is(Mistake::missing_arrival) && threadIdx.x == 5 && round == 1) continue;
      if (is(Mistake::arrival_before_copies))
        shared.full[stage].arrive();
      else
        shared.full[stage].arrive_after_copies();
    }
    if (is(Mistake::left_over_arrival)) cuda::named_barrier_arrive(kTurn, 2 * kWarpgroup);
    if (!is(Mistake::too_few_arrivals_at_named_barrier)) {
      const unsigned count = is(Mistake::another_count_at_named_barrier) ? kWarpgroup : 2 * kWarpgroup;
      cuda::named_barrier_arrive(kTurn + 1, is(Mistake::count_is_not_of_warps) ? 100 : count);
    }
    return;
  }
  const int thread = static_cast<int>(threadIdx.x) - kWarpgroup, lane = thread % 32;
  cuda::acquire_registers<256>();
  float sums[kColumns / 8][4] = {};
  for (int round = 0; round < kRounds; ++round) {
    const int stage = round % kStages;
    const auto parity = static_cast<unsigned>(round / kStages % 2);
    if (!is(Mistake::no_wait_for_copies))
      shared.full[stage].wait(is(Mistake::wrong_parity) ? parity ^ 1 : parity);
    if (!is(Mistake::no_proxy_fence)) cuda::fence_async_proxy();
    cuda::warpgroup_fence();
    const unsigned char* const left =
        shared.a[is(Mistake::another_matrix_in_a_warp) && thread >= 96 ? 1 - stage : stage];
    cuda::warpgroup_multiply_add<T, kTransposed>(
        sums,
        kTransposed ? cuda::matrix_descriptor(left, 8 * kRowBytes, kDepth * kRowBytes)
                    : cuda::matrix_descriptor(left, kPlaneA, 8 * kRowBytes),
        cuda::matrix_descriptor(shared.b[stage], kPlaneB, 8 * kRowBytes));
    cuda::warpgroup_commit();
    const auto free = [&] {
      __syncwarp();
      if (lane == 0) shared.free[stage].arrive();
    };
    if (is(Mistake::free_before_the_wait)) free();
    cuda::warpgroup_wait<0>();
    if (!is(Mistake::free_before_the_wait)) free();
  }
  cuda::named_barrier_sync(kTurn + 1, 2 * kWarpgroup);
  for (int j = 0; j < kColumns / 8; ++j)
    for (int e = 0; e < 4; ++e)
      d[(thread / 32 * 16 + lane / 4 + e / 2 * 8) * kColumns + 8 * j + lane % 4 * 2 + e % 2] = sums[j][e];
}

/// A launch of 512 threads has at most 128 registers for each.
__global__ void take_registers(int mistake) {
  const bool is_first = threadIdx.x < kWarpgroup;
  if (mistake == 0) is_first ? cuda::release_registers<40>() : cuda::acquire_registers<152>();
  if (mistake == 1) is_first ? cuda::release_registers<128>() : cuda::acquire_registers<136>();
  if (mistake == 2 && is_first) cuda::release_registers<136>();
  if (mistake == 3 && threadIdx.x < 32) cuda::release_registers<40>();
  if (mistake == 4 && is_first) cuda::release_registers<20>();
}

template <class T>
std::vector<T> small_integers(std::size_t count, int seed) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(static_cast<float>((static_cast<int>(i) * 37 + seed) % 23 - 11)));
  return values;
}

/// The factors of kRounds products.
template <class T, bool kTransposed>
struct Factors {
  std::vector<T> a = small_integers<T>(std::size_t{kRounds} * kRows * kDepth, 1),
                 b = small_integers<T>(std::size_t{kRounds} * kColumns * kDepth, 5);

  std::vector<float> product() const {
    std::vector<float> d;
    for (int row = 0; row < kRows; ++row)
      for (int column = 0; column < kColumns; ++column) {
        float sum = 0;
        for (int round = 0; round < kRounds; ++round)
          for (int k = 0; k < kDepth; ++k) {
            const int left =
                kTransposed ? (round * kDepth + k) * kRows + row : (round * kRows + row) * kDepth + k;
            const int right = (round * kColumns + column) * kDepth + k;
            sum += static_cast<float>(a[static_cast<std::size_t>(left)]) *
                   static_cast<float>(b[static_cast<std::size_t>(right)]);
          }
        d.push_back(sum);
      }
    return d;
  }
};

class AsyncBarrier : public EmulatorTest {
 protected:
  template <class T, bool kTransposed>
  static void expect_product() {
    const Factors<T, kTransposed> factors;
    Gpu gpu;
    const Numbers<T> a(gpu, factors.a), b(gpu, factors.b);
    const Numbers<float> d(gpu, kRows * kColumns);
    kernels::launch(gpu.stream, 1, 2 * kWarpgroup, sizeof(Shared), multiply_ring<T, kTransposed>,
                    Mistake::none, a.data(), b.data(), d.data());
    EXPECT_EQ(d.values(), factors.product());
  }
  /// Expects a report in every order of threads.
  template <class Matcher>
  void expect_report(Mistake mistake, const Matcher& matcher) {
    SCOPED_TRACE(static_cast<int>(mistake));
    for_each_order([&] {
      Gpu gpu;
      const Factors<bfloat16, false> factors;
      const Numbers<bfloat16> a(gpu, factors.a), b(gpu, factors.b);
      const Numbers<float> d(gpu, kRows * kColumns);
      EXPECT_THAT(fault_of(1, 2 * kWarpgroup, sizeof(Shared), multiply_ring<bfloat16, false>, mistake,
                           a.data(), b.data(), d.data()),
                  matcher);
    });
  }
};

TEST_F(AsyncBarrier, ARingOfStagesGivesTheProduct) {
  for_each_order([] {
    expect_product<bfloat16, false>();
    expect_product<float16, false>();
    expect_product<bfloat16, true>();
    expect_product<float16, true>();
  });
}

TEST_F(AsyncBarrier, ReportsReadsBeforeTheBarrier) {
  const auto early = HasSubstr("the thread has not waited at a barrier that the copy completes");
  const auto overwritten = HasSubstr("an asynchronous copy writes shared memory at");
  const auto waits = HasSubstr("waits for the end of a phase of parity");
  expect_report(Mistake::no_wait_for_copies, AnyOf(early, overwritten));
  expect_report(Mistake::wrong_parity, AnyOf(early, overwritten, waits));
  expect_report(Mistake::arrival_before_copies, AnyOf(early, overwritten));
}

TEST_F(AsyncBarrier, ReportsArrivalsThatAreMissing) {
  expect_report(Mistake::missing_arrival, HasSubstr("with 127 of 128 arrivals and 0 B missing"));
}

TEST_F(AsyncBarrier, ReportsCopiesToWhatIsStillRead) {
  const auto found = AnyOf(HasSubstr("which a wgmma.mma_async of warp"), HasSubstr("has not landed"),
                           HasSubstr("the thread has not waited at a barrier that the copy completes"));
  expect_report(Mistake::free_before_the_wait, found);
  expect_report(Mistake::no_wait_for_readers, found);
}

TEST_F(AsyncBarrier, ReportsCopiesWithoutAProxyFence) {
  expect_report(Mistake::no_proxy_fence, HasSubstr("without a fence.proxy.async after it"));
}

TEST_F(AsyncBarrier, ReportsBarriersThatAreNotInitialized) {
  expect_report(Mistake::barrier_is_not_initialized,
                HasSubstr("of an mbarrier that no thread has initialized"));
  expect_report(Mistake::no_barrier_after_initialization,
                AnyOf(HasSubstr("that thread 0 initializes; no barrier is between them"),
                      HasSubstr("of an mbarrier that no thread has initialized")));
}

TEST_F(AsyncBarrier, ReportsMistakesWithNamedBarriers) {
  expect_report(Mistake::too_few_arrivals_at_named_barrier,
                HasSubstr("waits at named barrier 2, where 128 of 256 threads are"));
  expect_report(Mistake::another_count_at_named_barrier,
                AnyOf(HasSubstr("threads for named barrier 2, where others expect"),
                      HasSubstr("waits at named barrier 2, where 128 of 256 threads are")));
  expect_report(Mistake::count_is_not_of_warps,
                HasSubstr("expected a multiple of 32 up to the 256 of the block"));
  expect_report(Mistake::left_over_arrival,
                HasSubstr("named barrier 1 has 128 of 256 threads at the end of the block"));
}

TEST_F(AsyncBarrier, ReportsRegistersThatDoNotExist) {
  const auto report = [](int mistake) { return fault_of(1, 512, 0, take_registers, mistake); };
  EXPECT_EQ(report(0), "");
  EXPECT_THAT(report(1), HasSubstr("the threads have 68608 registers in all, expected at most 65536"));
  EXPECT_THAT(report(2), HasSubstr("setmaxnreg.dec: found 136 registers, where the thread has 128"));
  EXPECT_THAT(report(3), HasSubstr("has 128 registers by setmaxnreg, and thread 0 of its warpgroup has 40"));
  EXPECT_THAT(report(4), HasSubstr("found 20 registers, expected a multiple of 8 from 24 to 256"));
}

TEST_F(AsyncBarrier, ReportsMatricesThatDifferInAWarpgroup) {
  expect_report(Mistake::another_matrix_in_a_warp,
                HasSubstr("whose matrix descriptor is not that of other threads of the warpgroup"));
}

}  // namespace
}  // namespace convoy::emulator
