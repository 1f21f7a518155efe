// Tests of matrix multiplications by warpgroups: results, when they are there, and each mistake.
#include "tests/cuda_emulator/tests/warpgroup.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <cmath>
#include <cstdint>

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "emulator/runtime/warpgroup.h"
#include "tests/cuda_emulator/tests/fixture.h"
#include "tests/cuda_emulator/tests/hopper.h"
#include "tests/cuda_emulator/tests/tensor_core.h"

namespace convoy::emulator {
namespace {

namespace cuda = kernels::cuda;
using ::testing::HasSubstr;

constexpr int kRows = 64, kColumns = 64, kDepth = 16, kThreads = 128;
constexpr std::size_t kBytes = std::size_t{2} * 2 * kDepth * kColumns;  // of b, and as many more

enum class Mistake {
  none,
  no_fence,
  fence_before_load,
  change_a_between,
  change_d_between,
  read_d_early,
  write_d_early,
  write_a_early,
  load_a_early,
  write_b_early,
  wait_for_first_only,
  another_descriptor,
  skip_in_a_warp,
  extra_in_a_warp,
  copy_without_proxy_fence,
  misaligned,
  out_of_bounds,
};

template <class T>
std::uint32_t pair_of(T low, T high) {
  return std::uint32_t{low.bits} | std::uint32_t{high.bits} << 16;
}

// Swizzles: the offset of 16 bytes in a matrix whose rows have 2 or 8 such chunks. Any 8 adjacent rows have
// the same chunk in 8 different groups of four banks, so that ldmatrix reads them at once.
__device__ int narrow_offset(int row, int chunk) { return row * 32 + (chunk ^ (row >> 2 & 1)) * 16; }
__device__ int wide_offset(int row, int chunk) { return row * 128 + (chunk ^ (row & 7)) * 16; }

/// Sets b [16, 64], row-major, in the layout of matrix_descriptor<kTransposed>().
template <class T, bool kTransposed>
__device__ void put(const T* b, unsigned char* shared) {
  for (int i = static_cast<int>(threadIdx.x); i < kDepth * kColumns; i += kThreads) {
    const int k = i / kColumns, n = i % kColumns;
    const int at = kTransposed ? wide_offset(k, n / 8) + n % 8 * 2 : narrow_offset(n, k / 8) + k % 8 * 2;
    *reinterpret_cast<T*>(shared + at) = b[i];
  }
}

/// Computes d [64, 64] = 2 a [64, 16] b [16, 64] by two multiplications in a group each; all are row-major.
template <class T, bool kTransposed>
__global__ void multiply_twice(Mistake mistake, const T* a, const T* b, float* d) {
  unsigned char* const shared = &cuda::shared_memory<unsigned char>();
  const int thread = static_cast<int>(threadIdx.x), lane = thread % 32, g = lane / 4, t = lane % 4;
  const int row = thread / 32 * 16 + g;
  put<T, kTransposed>(b, shared);
  cuda::fence_async_proxy();
  __syncthreads();
  if (mistake == Mistake::copy_without_proxy_fence) {
    cuda::copy_async(shared + 16 * thread, b, false);
    cuda::commit_copies();
    cuda::wait_for_copies<0>();
    __syncthreads();
  }
  const auto of_a = [&](int r, int k) { return pair_of(a[kDepth * r + k], a[kDepth * r + k + 1]); };
  std::uint32_t left[4] = {of_a(row, 2 * t), of_a(row + 8, 2 * t), of_a(row, 2 * t + 8),
                           of_a(row + 8, 2 * t + 8)};
  std::uint64_t right = cuda::matrix_descriptor<kTransposed>(shared);
  if (mistake == Mistake::another_descriptor && thread >= 96) right += 2048 >> 4;
  if (mistake == Mistake::misaligned) right += 128 >> 4;
  if (mistake == Mistake::out_of_bounds) right += 4096 >> 4;
  float sums[8][4] = {};
  if (mistake != Mistake::no_fence) cuda::warpgroup_fence();
  if (mistake == Mistake::fence_before_load) cuda::load_matrices(shared, left);
  if (mistake == Mistake::extra_in_a_warp && thread >= 96) cuda::warpgroup_commit();
  cuda::warpgroup_multiply_add<T, kTransposed>(sums, left, right);
  cuda::warpgroup_commit();
  if (mistake == Mistake::read_d_early) {
    for (int i = 0; i < 32; ++i) d[32 * thread + i] = sums[i / 4][i % 4];
    cuda::warpgroup_wait<0>();
    return;
  }
  if (mistake == Mistake::skip_in_a_warp && thread < 32) return;
  if (mistake == Mistake::write_d_early) sums[7][3] = 0;
  if (mistake == Mistake::load_a_early) cuda::load_matrices(shared, left);
  if (mistake == Mistake::change_a_between || mistake == Mistake::change_d_between) {
    cuda::warpgroup_wait<0>();
    if (mistake == Mistake::change_a_between) left[0] ^= 1;
    if (mistake == Mistake::change_d_between) sums[0][0] += 1;
  }
  cuda::warpgroup_multiply_add<T, kTransposed>(sums, left, right);
  cuda::warpgroup_commit();
  if (mistake == Mistake::write_a_early) left[3] ^= 1;
  if (mistake == Mistake::write_b_early) *reinterpret_cast<T*>(shared + 16 * thread) = T{};
  if (mistake == Mistake::wait_for_first_only)
    cuda::warpgroup_wait<1>();
  else
    cuda::warpgroup_wait<0>();
  for (int j = 0; j < 8; ++j)
    for (int i = 0; i < 4; ++i) d[kColumns * (row + i / 2 * 8) + 8 * j + 2 * t + i % 2] = sums[j][i];
}

/// Returns integers that every type holds, so that all sums are exact.
template <class T>
std::vector<T> small_integers(std::size_t count, int seed) {
  std::vector<T> values;
  for (std::size_t i = 0; i < count; ++i)
    values.push_back(static_cast<T>(static_cast<float>((static_cast<int>(i) * 37 + seed) % 23 - 11)));
  return values;
}

template <class T>
struct Matrices {
  std::vector<T> a = small_integers<T>(kRows * kDepth, 1), b = small_integers<T>(kDepth * kColumns, 5);

  /// Returns 2 a b.
  std::vector<float> product() const {
    std::vector<float> d;
    for (std::size_t row = 0; row < kRows; ++row)
      for (std::size_t column = 0; column < kColumns; ++column) {
        float sum = 0;
        for (std::size_t k = 0; k < kDepth; ++k)
          sum += static_cast<float>(a[kDepth * row + k]) * static_cast<float>(b[kColumns * k + column]);
        d.push_back(2 * sum);
      }
    return d;
  }
  template <bool kTransposed>
  std::vector<float> found(Mistake mistake = Mistake::none) const {
    Gpu gpu;
    const Numbers<T> left(gpu, a), right(gpu, b);
    const Numbers<float> d(gpu, kRows * kColumns);
    kernels::launch(gpu.stream, 1, kThreads, kBytes, multiply_twice<T, kTransposed>, mistake, left.data(),
                    right.data(), d.data());
    return d.values();
  }
};

class Warpgroup : public EmulatorTest {
 protected:
  static std::vector<float> found(Mistake mistake) { return Matrices<bfloat16>().found<false>(mistake); }
  /// Returns the report of a launch with b not transposed.
  static std::string fault(Mistake mistake, unsigned threads = kThreads) {
    Gpu gpu;
    const Matrices<float16> matrices;
    const Numbers<float16> a(gpu, matrices.a), b(gpu, matrices.b);
    const Numbers<float> d(gpu, kRows * kColumns);
    return fault_of(1, threads, kBytes, multiply_twice<float16, false>, mistake, a.data(), b.data(),
                    d.data());
  }
};

TEST_F(Warpgroup, MultipliesToTheProductOfMatrices) {
  for_each_order([] {
    EXPECT_EQ(Matrices<bfloat16>().found<false>(), Matrices<bfloat16>().product());
    EXPECT_EQ(Matrices<bfloat16>().found<true>(), Matrices<bfloat16>().product());
    EXPECT_EQ(Matrices<float16>().found<false>(), Matrices<float16>().product());
    EXPECT_EQ(Matrices<float16>().found<true>(), Matrices<float16>().product());
  });
}

TEST_F(Warpgroup, ResultsAreNaNUntilTheThreadWaits) {
  for (const float value : found(Mistake::read_d_early)) EXPECT_TRUE(std::isnan(value));
  // Registers to which a pending group adds have no result of earlier groups either.
  for (const float value : found(Mistake::wait_for_first_only)) EXPECT_TRUE(std::isnan(value));
}

TEST_F(Warpgroup, ReadsSharedMemoryWhenTheThreadWaits) {
  for_each_order([] { EXPECT_NE(found(Mistake::write_b_early), Matrices<bfloat16>().product()); });
}

TEST_F(Warpgroup, ReportsMissingFences) {
  EXPECT_THAT(fault(Mistake::no_fence), HasSubstr("wgmma.mma_async without a wgmma.fence before"));
  EXPECT_THAT(fault(Mistake::fence_before_load), HasSubstr("registers of a that were loaded after the last"));
  EXPECT_THAT(fault(Mistake::change_a_between), HasSubstr("registers of a that were changed after the last"));
  EXPECT_THAT(fault(Mistake::change_d_between), HasSubstr("registers of d that were changed after the last"));
}

TEST_F(Warpgroup, ReportsRegistersThatChangeBeforeTheEnd) {
  EXPECT_THAT(fault(Mistake::write_d_early), HasSubstr("registers of d have changed before"));
  EXPECT_THAT(fault(Mistake::write_a_early), HasSubstr("registers of a have changed before"));
  EXPECT_THAT(fault(Mistake::load_a_early), HasSubstr("ldmatrix to registers of a while"));
}

TEST_F(Warpgroup, ReportsThreadsThatDoNotTakePart) {
  for (const Order order : {Order::ascending, Order::descending}) {
    const ScopedSettings settings(with(order));
    EXPECT_THAT(fault(Mistake::skip_in_a_warp), HasSubstr("thread 0 has ended without wgmma.mma_async"));
    EXPECT_THAT(fault(Mistake::extra_in_a_warp), HasSubstr("while other threads of the warpgroup execute"));
    EXPECT_THAT(fault(Mistake::another_descriptor),
                HasSubstr("whose matrix descriptor is not that of other"));
  }
  EXPECT_THAT(fault(Mistake::none, 96), HasSubstr("in a block of 96 threads"));
}

TEST_F(Warpgroup, ReportsInvalidDescriptors) {
  EXPECT_THAT(fault(Mistake::misaligned), HasSubstr("at a multiple of 256 B"));
  EXPECT_THAT(fault(Mistake::out_of_bounds), HasSubstr("outside the block's shared memory"));
}

TEST_F(Warpgroup, ReportsCopiesWithoutAProxyFence) {
  for (const Order order : {Order::ascending, Order::descending}) {
    const ScopedSettings settings(with(order));
    EXPECT_THAT(fault(Mistake::copy_without_proxy_fence), HasSubstr("without a fence.proxy.async after it"));
  }
}

// Tests of matrix descriptors, against the layouts and rules of the PTX ISA ("Matrix Descriptor Format",
// "Canonical Layouts").

enum Mode : std::uint64_t { kNone = 0, k128 = 1, k64 = 2, k32 = 3 };

std::uint64_t bits_of(std::uint64_t start, std::uint64_t leading, std::uint64_t stride, Mode mode,
                      std::uint64_t base_offset = 0) {
  return start >> 4 | leading >> 4 << 16 | stride >> 4 << 32 | base_offset << 49 |
         static_cast<std::uint64_t>(mode) << 62;
}

/// Swizzle<bits, 4, 3> of CuTe: combines bits 4, 5, … of an address with bits 7, 8, …
std::uint32_t swizzled(std::uint32_t address, unsigned bits) {
  return address ^ (address >> 3 & ((1u << bits) - 1) << 4);
}

/// Compares all elements of b [16, columns] with `offset(n, k)` in elements.
template <class F>
void expect_layout(std::uint64_t bits, bool is_transposed, unsigned columns, unsigned swizzle_bits,
                   F offset) {
  const MatrixDescriptor b(bits);
  EXPECT_EQ(b.error(), "");
  for (unsigned n = 0; n < columns; ++n)
    for (unsigned k = 0; k < 16; ++k)
      ASSERT_EQ(b.address(n, k, is_transposed), swizzled(b.start + 2 * offset(n, k), swizzle_bits))
          << "n " << n << ", k " << k;
}

TEST(MatrixDescriptor, KMajorLayoutsAreThoseOfPtx) {
  // ((8, m), (T, 2)) : ((1 T, SBO), (1, LBO)), ((2 T, SBO), (1, T)), ((4 T, …)), ((8 T, …)), with T = 8
  expect_layout(bits_of(2048, 1024, 128, kNone), false, 64, 0,
                [](unsigned n, unsigned k) { return n % 8 * 8 + n / 8 * 64 + k % 8 + k / 8 * 512; });
  expect_layout(bits_of(2048 + 256, 16, 256, k32), false, 64, 1,
                [](unsigned n, unsigned k) { return n % 8 * 16 + n / 8 * 128 + k; });
  expect_layout(bits_of(2048 + 512 + 32, 16, 1024, k64), false, 64, 2,  // the second 16 of k of a wider tile
                [](unsigned n, unsigned k) { return n % 8 * 32 + n / 8 * 512 + k; });
  expect_layout(bits_of(2048, 16, 1024, k128), false, 128, 3,
                [](unsigned n, unsigned k) { return n % 8 * 64 + n / 8 * 512 + k; });
}

TEST(MatrixDescriptor, TransposedLayoutsAreThoseOfPtx) {
  // The examples of the PTX ISA for bf16: without swizzle, 32 and 64 bytes; then 128 bytes.
  expect_layout(bits_of(2048, 256, 128, kNone), true, 16, 0,
                [](unsigned n, unsigned k) { return n % 8 + n / 8 * 64 + k % 8 * 8 + k / 8 * 128; });
  expect_layout(bits_of(2048, 256, 512, k32), true, 32, 1, [](unsigned n, unsigned k) {
    return n % 8 + n / 8 % 2 * 8 + n / 16 * 128 + k % 8 * 16 + k / 8 * 256;
  });
  expect_layout(bits_of(2048, 512, 1024, k64), true, 64, 2, [](unsigned n, unsigned k) {
    return n % 8 + n / 8 % 4 * 8 + n / 32 * 256 + k % 8 * 32 + k / 8 * 512;
  });
  expect_layout(bits_of(2048, 2048, 1024, k128), true, 128, 3, [](unsigned n, unsigned k) {
    return n % 8 + n / 8 % 8 * 8 + n / 64 * 1024 + k % 8 * 64 + k / 8 * 512;
  });
}

TEST(MatrixDescriptor, ABaseOffsetMovesThePattern) {
  // A pattern that begins at 1024 + 3 * 128 has the chunks of row r at place c xor (r % 8) all the same.
  const MatrixDescriptor moved(bits_of(1024 + 384, 16, 1024, k128, 3)), usual(bits_of(1024, 16, 1024, k128));
  EXPECT_EQ(moved.error(), "");
  for (unsigned row = 0; row < 5; ++row)  // further rows are in the next 1,024 bytes
    EXPECT_EQ(moved.address(row, 8, false), usual.address(row, 8, false) + 384) << row;
}

TEST(MatrixDescriptor, ReportsWhatPtxForbids) {
  const auto error_of = [](std::uint64_t bits) { return MatrixDescriptor(bits).error(); };
  EXPECT_EQ(error_of(bits_of(1024, 16, 256, k32)), "");
  EXPECT_THAT(error_of(bits_of(1024 + 128, 16, 256, k32)), HasSubstr("at a multiple of 256 B"));
  EXPECT_THAT(error_of(bits_of(1024 + 32, 16, 256, k32)), HasSubstr("in the first row of a pattern"));
  EXPECT_EQ(error_of(bits_of(1024 + 128, 16, 256, k32, 1)), "");
  EXPECT_THAT(error_of(bits_of(1024 + 256, 16, 256, k32, 1)), HasSubstr("with base offset 1"));
  EXPECT_THAT(error_of(bits_of(1024 + 512, 16, 1024, k128)), HasSubstr("at a multiple of 1024 B"));
  EXPECT_THAT(error_of(bits_of(1024, 16, 128, k32)),
              HasSubstr("stride offset, 128 B, is not a multiple of 256 B"));
  EXPECT_THAT(error_of(bits_of(1024, 128, 256, kNone, 1)), HasSubstr("needs a swizzle mode"));
  EXPECT_THAT(error_of(bits_of(1024, 16, 256, k32) | std::uint64_t{1} << 52),
              HasSubstr("outside its fields"));
}

}  // namespace
}  // namespace convoy::emulator
