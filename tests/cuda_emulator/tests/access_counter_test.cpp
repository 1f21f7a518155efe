// Tests of the counter of memory accesses, with kernels whose requests, sectors and wavefronts are known.
#include <numeric>

#include "convoy/kernels/cuda/primitives/element.h"
#include "convoy/kernels/elementwise.h"
#include "emulator/counting/source_lines.h"
#include "tests/cuda_emulator/tests/fixture.h"
#include "tests/cuda_emulator/tests/tensor_core.h"
#include "tests/cuda_emulator/tests/warpgroup.h"

namespace convoy::emulator {
namespace {

using kernels::cuda::shared_memory;

class AccessCounts : public EmulatorTest {
 protected:
  /// Launches `kernel` and returns its counts, which must not depend on the order of threads.
  template <class... Parameters>
  LaunchCounts counts(dim3 grid, dim3 block, std::size_t shared_bytes, void (*kernel)(Parameters...),
                      std::type_identity_t<Parameters>... arguments) {
    LaunchCounts result{};
    for_each_order([&] {
      start_counting();
      kernels::launch(gpu_.stream, grid, block, shared_bytes, kernel, arguments...);
      const std::vector<LaunchCounts> all = stop_counting();
      ASSERT_EQ(all.size(), 1u);
      if (result.kernel != nullptr) {
        EXPECT_EQ(all[0].accesses.loads.sectors, result.accesses.loads.sectors);
        EXPECT_EQ(all[0].accesses.shared_loads.wavefronts, result.accesses.shared_loads.wavefronts);
      }
      result = all[0];
    });
    return result;
  }

  Gpu gpu_;
};

__global__ void copy(int n, const float* x, float* y) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < n) y[i] = x[i];
}

template <bool kTransposed>
__global__ void multiply_by_warpgroup(float* y) {
  namespace cuda = kernels::cuda;
  float sums[8][4] = {};
  const std::uint32_t a[4] = {};
  cuda::warpgroup_fence();
  cuda::warpgroup_multiply_add<bfloat16, kTransposed>(
      sums, a, cuda::matrix_descriptor<kTransposed>(&shared_memory<unsigned char>()));
  cuda::warpgroup_commit();
  cuda::warpgroup_wait<0>();
  y[threadIdx.x] = sums[0][0];
}

__global__ void load_by_warp() {
  std::uint32_t a[4];
  kernels::cuda::load_matrices(&shared_memory<unsigned char>() + threadIdx.x * 16, a);
}

// The counts are the same if tensor cores do not compute.
TEST_F(AccessCounts, AWarpgroupReadsAMatrixOnceWithoutConflicts) {
  const Numbers<float> y(gpu_, 128);
  for (const bool computes : {true, false})
    for (const auto kernel : {multiply_by_warpgroup<false>, multiply_by_warpgroup<true>}) {
      set_tensor_cores_compute(computes);
      const LaunchCounts all = counts(1, 128, 2048, kernel, y.data());
      set_tensor_cores_compute(true);
      EXPECT_EQ(all.flops, 2u * 64 * 64 * 16);
      EXPECT_EQ(all.accesses.tensor_loads.wavefronts, 2048u / 128);
      EXPECT_EQ(all.accesses.tensor_loads.conflicts(), 1);
      EXPECT_EQ(all.accesses.shared_loads.requests, 0u);
    }
}

TEST_F(AccessCounts, AWarpLoadsFourMatricesAtOnce) {
  for (const bool computes : {true, false}) {
    set_tensor_cores_compute(computes);
    const LaunchCounts all = counts(1, 32, 512, load_by_warp);
    set_tensor_cores_compute(true);
    EXPECT_EQ(all.accesses.shared_loads.requests, 1u);
    EXPECT_EQ(all.accesses.shared_loads.wavefronts, 4u);
  }
}

TEST_F(AccessCounts, ACopyAsksForEachSectorOnce) {
  const Numbers<float> x(gpu_, 256), y(gpu_, 256);
  const LaunchCounts all = counts(2, 128, 0, copy, 256, x.data(), y.data());
  for (const GlobalAccesses& accesses : {all.accesses.loads, all.accesses.stores}) {
    EXPECT_EQ(accesses.requests, 8u);
    EXPECT_EQ(accesses.sectors, 32u);
    EXPECT_EQ(accesses.lanes, 256u);
    EXPECT_EQ(accesses.bytes, 1024u);
    EXPECT_EQ(accesses.efficiency(), 1);
  }
  EXPECT_EQ(all.bytes_read, 1024u);
  EXPECT_EQ(all.bytes_written, 1024u);
  EXPECT_EQ(all.grid.x, 2u);
  ASSERT_EQ(all.sites.size(), 2u);
  ASSERT_EQ(all.arrays.size(), 2u);
  EXPECT_EQ(all.arrays[0].array_bytes, 1024u);
}

TEST_F(AccessCounts, LanesThatDoNothingAreNotCounted) {
  const Numbers<float> x(gpu_, 256), y(gpu_, 256);
  const GlobalAccesses loads = counts(1, 64, 0, copy, 40, x.data(), y.data()).accesses.loads;
  EXPECT_EQ(loads.requests, 2u);
  EXPECT_EQ(loads.lanes, 40u);
  EXPECT_EQ(loads.sectors, 5u);
}

__global__ void strided_copy(int stride, const float* x, float* y) {
  y[threadIdx.x] = x[static_cast<int>(threadIdx.x) * stride];
}

TEST_F(AccessCounts, AStridedLoadTakesASectorPerLane) {
  const Numbers<float> x(gpu_, 32 * 8), y(gpu_, 32);
  const GlobalAccesses loads = counts(1, 32, 0, strided_copy, 8, x.data(), y.data()).accesses.loads;
  EXPECT_EQ(loads.requests, 1u);
  EXPECT_EQ(loads.sectors, 32u);
  EXPECT_EQ(loads.bytes, 128u);
  EXPECT_EQ(loads.efficiency(), 0.125);
}

TEST_F(AccessCounts, LanesThatReadTheSameElementShareASector) {
  const Numbers<float> x(gpu_, 32), y(gpu_, 32);
  const LaunchCounts all = counts(1, 32, 0, strided_copy, 0, x.data(), y.data());
  EXPECT_EQ(all.accesses.loads.sectors, 1u);
  EXPECT_EQ(all.accesses.loads.bytes, 4u);
  EXPECT_EQ(all.accesses.loads.lanes, 32u);
  EXPECT_EQ(all.bytes_read, 4u);
}

template <class T, int kWidth>
__global__ void copy_packs(const T* x, T* y) {
  const auto i = static_cast<int>(threadIdx.x) * kWidth;
  kernels::cuda::store_pack(y + i, kernels::cuda::load_pack<kWidth>(x + i));
}

TEST_F(AccessCounts, APackIsOneAccess) {
  const Numbers<float> x(gpu_, 32 * 4), y(gpu_, 32 * 4);
  const Accesses f32 = counts(1, 32, 0, copy_packs<float, 4>, x.data(), y.data()).accesses;
  EXPECT_EQ(f32.loads.requests, 1u);
  EXPECT_EQ(f32.loads.sectors, 16u);
  EXPECT_EQ(f32.stores.requests, 1u);
  EXPECT_EQ(f32.stores.efficiency(), 1);
  const Numbers<bfloat16> h(gpu_, 32 * 8), k(gpu_, 32 * 8);
  const Accesses bf16 = counts(1, 32, 0, copy_packs<bfloat16, 8>, h.data(), k.data()).accesses;
  EXPECT_EQ(bf16.loads.requests, 1u);
  EXPECT_EQ(bf16.stores.sectors, 16u);
}

__global__ void copy_with_tail(int n, const float* x, float* y) {
  const int packs = n / 4;
  for (int i = static_cast<int>(threadIdx.x); i < packs; i += 32)
    kernels::cuda::store_pack(y + 4 * i, kernels::cuda::load_pack<4>(x + 4 * i));
  for (int i = 4 * packs + static_cast<int>(threadIdx.x); i < n; i += 32) y[i] = x[i];
}

TEST_F(AccessCounts, ATailInSingleElementsIsSeenAtItsLine) {
  const Numbers<float> x(gpu_, 132), y(gpu_, 132);
  const LaunchCounts all = counts(1, 32, 0, copy_with_tail, 131, x.data(), y.data());
  EXPECT_EQ(all.accesses.loads.requests, 2u);
  std::vector<const void*> addresses;
  for (const SiteCounts& site : all.sites) addresses.push_back(site.site);
  const std::vector<std::vector<SourceLine>> lines = source_lines(addresses);
  std::size_t tails = 0;
  for (std::size_t i = 0; i < all.sites.size(); ++i) {
    ASSERT_FALSE(lines[i].empty());
    EXPECT_EQ(lines[i].back().function, "copy_with_tail");
    EXPECT_EQ(lines[i].back().file, "tests/cuda_emulator/tests/access_counter_test.cpp");
    if (lines[i].front().function != "copy_with_tail") continue;  // inside load_pack() or store_pack()
    ++tails;
    EXPECT_EQ(all.sites[i].accesses.loads.lanes + all.sites[i].accesses.stores.lanes, 3u);
  }
  EXPECT_EQ(tails, 2u);
}

/// Each thread writes one word of shared memory and reads another one, `stride` words apart from its neighbor's.
template <class T>
__global__ void shared_columns(int stride, T* y) {
  struct Words {
    T values[1024];
  };
  auto& words = shared_memory<Words>();
  for (int i = static_cast<int>(threadIdx.x); i < 1024; i += 32) words.values[i] = static_cast<T>(i);
  __syncthreads();
  y[threadIdx.x] = words.values[static_cast<int>(threadIdx.x) * stride];
}

TEST_F(AccessCounts, WordsOfOneBankTakeAWavefrontEach) {
  const Numbers<int> y(gpu_, 32);
  for (const auto& [stride, wavefronts] :
       {std::pair{1, 1u}, {2, 2u}, {4, 4u}, {32, 32u}, {31, 1u}, {0, 1u}}) {
    const LaunchCounts all = counts(1, 32, 4096, shared_columns<int>, stride, y.data());
    EXPECT_EQ(all.accesses.shared_loads.requests, 1u) << stride;
    EXPECT_EQ(all.accesses.shared_loads.wavefronts, wavefronts) << stride;
    EXPECT_EQ(all.accesses.shared_loads.conflicts(), wavefronts) << stride;
    EXPECT_EQ(all.accesses.shared_stores.requests, 32u);
    EXPECT_EQ(all.accesses.shared_stores.conflicts(), 1);
    EXPECT_EQ(all.barriers, 1u);
  }
}

TEST_F(AccessCounts, EightBytesTakeTwoWavefronts) {
  const Numbers<double> y(gpu_, 32);
  const SharedAccesses loads = counts(1, 32, 8192, shared_columns<double>, 1, y.data()).accesses.shared_loads;
  EXPECT_EQ(loads.wavefronts, 2u);
  EXPECT_EQ(loads.conflicts(), 1);
}

__global__ void count_up(int* counter) { atomicAdd(counter, 1); }

TEST_F(AccessCounts, AtomicsAreCountedApart) {
  const Numbers<int> counter(gpu_, std::vector<int>{0});
  const LaunchCounts all = counts(2, 32, 0, count_up, counter.data());
  EXPECT_EQ(all.accesses.atomics, 64u);
  EXPECT_EQ(all.accesses.loads.requests, 0u);
  EXPECT_EQ(all.bytes_read, 4u);
  EXPECT_EQ(all.bytes_written, 4u);
}

TEST_F(AccessCounts, KernelsOfTheLibraryAreCounted) {
  ASSERT_TRUE(can_count());
  constexpr std::size_t kCount = 1 << 12;
  const Numbers<float> x(gpu_, kCount), y(gpu_, kCount);
  start_counting();
  kernels::unary_forward(gpu_.stream, kernels::UnaryOp::relu, ConstView(x.data(), {kCount}, DType::f32),
                         View(y.data(), {kCount}, DType::f32));
  const std::vector<LaunchCounts> all = stop_counting();
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(all[0].accesses.loads.requests, kCount * 4 / 512);
  EXPECT_EQ(all[0].accesses.loads.sectors, kCount * 4 / 32);
  EXPECT_EQ(all[0].accesses.stores.sectors, kCount * 4 / 32);
  const void* const kernel[] = {all[0].kernel};
  EXPECT_EQ(source_lines(kernel)[0].front().function, "map_kernel");
  EXPECT_EQ(source_lines(kernel)[0].front().file, "kernels/cuda/primitives/map.h");
}

TEST_F(AccessCounts, CopiesAndFillsAreListed) {
  start_counting();
  {
    const Numbers<float> x(gpu_, std::vector<float>(64, 1));
    CUDA_CHECK(cudaMemsetAsync(x.data(), 0, 32, gpu_.stream.handle()));
    EXPECT_EQ(x.values()[0], 0);
  }
  const std::vector<LaunchCounts> all = stop_counting();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_EQ(all[0].operation, "copy to the GPU");
  EXPECT_EQ(all[0].bytes_read, 0u);
  EXPECT_EQ(all[0].bytes_written, 256u);
  EXPECT_EQ(all[1].operation, "fill");
  EXPECT_EQ(all[1].bytes_written, 32u);
  EXPECT_EQ(all[2].operation, "copy to the host");
  EXPECT_EQ(all[2].bytes_read, 256u);
}

TEST_F(AccessCounts, NothingIsCountedUnlessAsked) {
  const Numbers<float> x(gpu_, 32), y(gpu_, 32);
  kernels::launch(gpu_.stream, 1, 32, 0, copy, 32, x.data(), y.data());
  start_counting();
  EXPECT_TRUE(stop_counting().empty());
}

}  // namespace
}  // namespace convoy::emulator
