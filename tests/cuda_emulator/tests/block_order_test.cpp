// Tests that a load of another block's result is reported unless fences and an atomic operation order the
// two.
#include "convoy/kernels/cuda/primitives/last_block.h"
#include "emulator/counting/source_lines.h"
#include "tests/cuda_emulator/tests/fixture.h"

namespace convoy::emulator {
namespace {

/// The steps of a block that publishes its sums and reads those of all blocks. A kernel leaves one of them
/// out.
enum class Step : std::uint8_t { none, barrier_before, fence_before, atomic, fence_after, barrier_after };

/// Each block stores 32 numbers. The last one adds up the numbers of all blocks.
template <Step kMissing>
__global__ void sum_in_last_block(unsigned* ticket, int* numbers, int* sum) {
  int& is_last = kernels::cuda::shared_memory<int>();
  numbers[blockIdx.x * 32 + threadIdx.x] = static_cast<int>(threadIdx.x);
  if (kMissing != Step::barrier_before) __syncthreads();
  if (threadIdx.x == 0) {
    if (kMissing != Step::fence_before) __threadfence();
    if (kMissing == Step::atomic)
      is_last = blockIdx.x == gridDim.x - 1;
    else
      is_last = atomicInc(ticket, gridDim.x - 1) == gridDim.x - 1;
    if (kMissing != Step::fence_after) __threadfence();
  }
  if (kMissing != Step::barrier_after) __syncthreads();
  if (is_last == 0 || threadIdx.x != (kMissing == Step::barrier_after ? 31u : 0u)) return;
  int total = 0;
  for (unsigned i = 0; i < 32 * gridDim.x; ++i) total += numbers[i];
  *sum = total;
}

class BlockOrder : public EmulatorTest {
 protected:
  template <Step kMissing>
  const void* unordered_load() {
    const Numbers<unsigned> ticket(gpu_, std::vector<unsigned>{0});
    const Numbers<int> numbers(gpu_, 32 * 4), sum(gpu_, 1);
    start_counting();
    kernels::launch(gpu_.stream, 4, 32, sizeof(int), sum_in_last_block<kMissing>, ticket.data(),
                    numbers.data(), sum.data());
    const std::vector<LaunchCounts> all = stop_counting();
    EXPECT_EQ(ticket.values()[0], 0u);
    EXPECT_EQ(sum.values()[0], 4 * 31 * 16);  // right even if a step is missing
    return all.at(0).unordered_load;
  }

  Gpu gpu_;
};

TEST_F(BlockOrder, AcceptsALastBlockThatFences) { EXPECT_EQ(unordered_load<Step::none>(), nullptr); }

TEST_F(BlockOrder, ReportsALoadIfAFenceABarrierOrTheAtomicIsMissing) {
  EXPECT_NE(unordered_load<Step::barrier_before>(), nullptr);
  EXPECT_NE(unordered_load<Step::fence_before>(), nullptr);
  EXPECT_NE(unordered_load<Step::atomic>(), nullptr);
  EXPECT_NE(unordered_load<Step::fence_after>(), nullptr);
  EXPECT_NE(unordered_load<Step::barrier_after>(), nullptr);
}

TEST_F(BlockOrder, ReportsTheLineOfTheLoad) {
  const void* const site[] = {unordered_load<Step::fence_before>()};
  const auto lines = source_lines(site);
  ASSERT_FALSE(lines[0].empty());
  EXPECT_EQ(lines[0].front().file, "tests/cuda_emulator/tests/block_order_test.cpp");
}

/// Uses is_last_block() for two tickets that share nothing but the array.
__global__ void sum_by_function(unsigned* tickets, int* numbers, int* sums) {
  bool& is_last = kernels::cuda::shared_memory<bool>();
  const unsigned group = blockIdx.x % 2, blocks = gridDim.x / 2;
  numbers[blockIdx.x * 32 + threadIdx.x] = static_cast<int>(threadIdx.x);
  if (!kernels::cuda::is_last_block(is_last, tickets + group, static_cast<int>(blocks))) return;
  if (threadIdx.x >= 2) return;
  int total = 0;
  for (unsigned block = 0; block < blocks; ++block)
    for (unsigned i = threadIdx.x; i < 32; i += 2) total += numbers[(2 * block + group) * 32 + i];
  sums[group * 2 + threadIdx.x] = total;
}

TEST_F(BlockOrder, AcceptsIsLastBlockInEveryOrder) {
  for_each_order([&] {
    const Numbers<unsigned> tickets(gpu_, std::vector<unsigned>{0, 0});
    for (const unsigned blocks : {2u, 6u, 128u}) {
      const Numbers<int> numbers(gpu_, 32 * blocks), sums(gpu_, 4);
      start_counting();
      kernels::launch(gpu_.stream, blocks, 32, sizeof(bool), sum_by_function, tickets.data(), numbers.data(),
                      sums.data());
      const std::vector<LaunchCounts> all = stop_counting();
      EXPECT_EQ(all.at(0).unordered_load, nullptr);
      const int half = static_cast<int>(blocks) / 2;
      EXPECT_EQ(sums.values(), (std::vector<int>{240 * half, 256 * half, 240 * half, 256 * half}));
      EXPECT_EQ(tickets.values(), (std::vector<unsigned>{0, 0}));
    }
  });
}

}  // namespace
}  // namespace convoy::emulator
