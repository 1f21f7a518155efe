// Tests of asynchronous copies and of matrices in fragments, against the layouts that the PTX ISA documents.
#include <cmath>

#include "convoy/kernels/base/dtype.h"
#include "convoy/kernels/cuda/primitives/launch.h"
#include "tests/cuda_emulator/tests/fixture.h"
#include "tests/cuda_emulator/tests/hopper.h"
#include "tests/cuda_emulator/tests/tensor_core.h"

namespace convoy::emulator {
namespace {

using kernels::cuda::commit_copies;
using kernels::cuda::copy_async;
using kernels::cuda::load_matrices;
using kernels::cuda::shared_memory;
using kernels::cuda::wait_for_copies;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct alignas(16) Quads {
  int values[32][4];
};

/// Each thread copies two groups of one quad each: x, then zeros. Stores what it sees of them in shared
/// memory after the copies have started, after the first group has landed, and after all have.
__global__ void watch_copies(const int* x, int* y) {
  auto& shared = shared_memory<Quads>();
  int* const first = shared.values[2 * threadIdx.x];
  int* const second = shared.values[2 * threadIdx.x + 1];
  for (int i = 0; i < 4; ++i) first[i] = second[i] = -1;
  copy_async(first, x + 4 * threadIdx.x, true);
  commit_copies();
  copy_async(second, x, false);
  commit_copies();
  const auto store = [&](int time) {
    y[6 * threadIdx.x + 2 * time] = first[3];
    y[6 * threadIdx.x + 2 * time + 1] = second[3];
  };
  store(0);
  wait_for_copies<1>();
  store(1);
  wait_for_copies<0>();
  store(2);
}

class Ptx : public EmulatorTest {};

TEST_F(Ptx, CopiesLandWhenTheThreadWaits) {
  for_each_order([] {
    Gpu gpu;
    const Numbers<int> x(gpu, counting<int>(4 * 16)), y(gpu, 6 * 16);
    kernels::launch(gpu.stream, 1, 16, sizeof(Quads), watch_copies, x.data(), y.data());
    const std::vector<int> seen = y.values();
    for (int thread = 0; thread < 16; ++thread)
      EXPECT_THAT(std::vector<int>(seen.begin() + 6 * thread, seen.begin() + 6 * (thread + 1)),
                  ElementsAre(-1, -1, 4 * thread + 3, -1, 4 * thread + 3, 0));
  });
}

/// Copies a quad per thread and reads that of the next thread.
__global__ void copy_from_next(bool waits, const int* x, int* y) {
  auto& shared = shared_memory<Quads>();
  copy_async(shared.values[threadIdx.x], x + 4 * threadIdx.x, true);
  commit_copies();
  if (waits) wait_for_copies<0>();
  __syncthreads();
  y[threadIdx.x] = shared.values[(threadIdx.x + 1) % 32][0];
}

TEST_F(Ptx, ABarrierDoesNotReplaceTheWait) {
  for_each_order([] {
    Gpu gpu;
    const Numbers<int> x(gpu, counting<int>(4 * 32)), y(gpu, 32);
    kernels::launch(gpu.stream, 1, 32, sizeof(Quads), copy_from_next, false, x.data(), y.data());
    EXPECT_THAT(y.values(), Each(-1));  // uninitialized
    kernels::launch(gpu.stream, 1, 32, sizeof(Quads), copy_from_next, true, x.data(), y.data());
    EXPECT_EQ(y.values()[31], 0);
    EXPECT_EQ(y.values()[6], 4 * 7);
  });
}

__global__ void copy_misaligned(int to, int from, const int* x) {
  copy_async(shared_memory<Quads>().values[0] + to, x + from, true);
}

TEST_F(Ptx, ReportsMisalignedCopies) {
  Gpu gpu;
  const Numbers<int> x(gpu, 8);
  EXPECT_THAT(fault_of(1, 1, sizeof(Quads), copy_misaligned, 2, 0, x.data()),
              HasSubstr("the destination of an asynchronous copy is not a multiple of 16"));
  EXPECT_THAT(fault_of(1, 1, sizeof(Quads), copy_misaligned, 0, 1, x.data()),
              HasSubstr("the source of an asynchronous copy is not a multiple of 16"));
}

__global__ void copy_to_global(int* y, const int* x) { copy_async(y, x, true); }

TEST_F(Ptx, ReportsCopiesToGlobalMemory) {
  Gpu gpu;
  const Numbers<int> x(gpu, 8), y(gpu, 8);
  EXPECT_THAT(fault_of(1, 1, sizeof(Quads), copy_to_global, y.data(), x.data()),
              HasSubstr("the destination of an asynchronous copy is not in shared memory"));
}

struct alignas(16) Rows {
  std::uint16_t values[32][8];
};

/// Loads four matrices whose elements are 8 row + column, of 32 rows, and stores each lane's pairs.
__global__ void load_numbered(std::uint32_t* y) {
  auto& shared = shared_memory<Rows>();
  for (unsigned column = 0; column < 8; ++column)
    shared.values[threadIdx.x][column] = static_cast<std::uint16_t>(8 * threadIdx.x + column);
  __syncwarp();
  std::uint32_t matrices[4];
  load_matrices(shared.values[threadIdx.x], matrices);
  for (unsigned m = 0; m < 4; ++m) y[4 * threadIdx.x + m] = matrices[m];
}

TEST_F(Ptx, MatricesAreDistributedInPairs) {
  for_each_order([] {
    Gpu gpu;
    const Numbers<std::uint32_t> pairs(gpu, 4 * 32);
    kernels::launch(gpu.stream, 1, 32, sizeof(Rows), load_numbered, pairs.data());
    const std::vector<std::uint32_t> rows = pairs.values();
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned m = 0; m < 4; ++m) {
        const unsigned g = lane / 4, t = lane % 4;
        const auto number = [m](unsigned row, unsigned column) { return 64 * m + 8 * row + column; };
        EXPECT_EQ(rows[4 * lane + m], number(g, 2 * t) | number(g, 2 * t + 1) << 16);
      }
  });
}

__global__ void load_misaligned() {
  std::uint32_t matrices[4];
  load_matrices(shared_memory<Rows>().values[0] + 1, matrices);
}

TEST_F(Ptx, ReportsMisalignedMatrices) {
  EXPECT_THAT(fault_of(1, 32, sizeof(Rows), load_misaligned),
              HasSubstr("the address of a matrix's row is not a multiple of 16"));
}

}  // namespace
}  // namespace convoy::emulator
