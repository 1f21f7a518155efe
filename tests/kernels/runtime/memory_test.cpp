#include "convoy/kernels/runtime/memory/memory.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "convoy/kernels/base/error.h"

namespace convoy {
namespace {

constexpr std::size_t kNoLimit = 0;

/// What a fake source has allocated. It outlives the allocator that owns the source.
struct BlockLedger {
  std::size_t capacity = std::numeric_limits<std::size_t>::max();
  std::size_t held = 0;
  std::size_t refusals = 0;
};

class FakeMemory final : public MemorySource {
 public:
  explicit FakeMemory(BlockLedger& ledger) : ledger_(ledger) {}
  void* allocate(std::size_t bytes) override {
    if (bytes > ledger_.capacity - ledger_.held) {
      ++ledger_.refusals;
      return nullptr;
    }
    ledger_.held += bytes;
    return std::malloc(bytes);
  }
  void release(void* block, std::size_t bytes) noexcept override {
    ledger_.held -= bytes;
    std::free(block);
  }
  std::string name() const override { return "fake:3"; }

 private:
  BlockLedger& ledger_;
};

TEST(SizeClass, WastesAtMostAnEighth) {
  std::size_t previous = 0;
  for (std::size_t bytes = 1; bytes < (1u << 16); ++bytes) {
    const std::size_t size = CachingAllocator::size_class(bytes);
    ASSERT_GE(size, bytes);
    ASSERT_GE(size, previous) << "size classes must grow with the request, " << bytes;
    ASSERT_EQ(size % 64, 0u) << bytes;
    ASSERT_EQ(CachingAllocator::size_class(size), size)
        << "the size of a class must be its own class, " << bytes;
    const std::size_t allowed = bytes <= 512 ? 63 : bytes / 8;
    ASSERT_LE(size - bytes, allowed) << bytes;
    previous = size;
  }
}

TEST(SizeClass, HasEightClassesForEachPowerOfTwo) {
  std::set<std::size_t> classes;
  for (std::size_t bytes = 4097; bytes <= 8192; ++bytes) classes.insert(CachingAllocator::size_class(bytes));
  EXPECT_EQ(classes.size(), 8u);
}

TEST(CachingAllocator, ZeroBytesGiveANullPointer) {
  BlockLedger ledger;
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), kNoLimit);
  EXPECT_EQ(allocator.allocate(0), nullptr);
  allocator.release(nullptr, 0);
  EXPECT_EQ(allocator.stats().source_calls, 0u);
}

TEST(CachingAllocator, ReusesAReleasedBlock) {
  BlockLedger ledger;
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), kNoLimit);
  void* const first = allocator.allocate(1000);
  allocator.release(first, 1000);
  void* const again = allocator.allocate(1001);  // of the same size class
  EXPECT_EQ(again, first);
  void* const larger = allocator.allocate(5000);
  EXPECT_NE(larger, first);
  EXPECT_EQ(allocator.stats().source_calls, 2u);
  allocator.release(again, 1001);
  allocator.release(larger, 5000);
}

TEST(CachingAllocator, ReportsLargeAllocationsToTheObserver) {
  BlockLedger ledger;
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), kNoLimit);
  std::vector<std::size_t> seen;
  allocator.set_observer(4096, [&](std::size_t bytes) { seen.push_back(bytes); });
  allocator.release(allocator.allocate(1000), 1000);
  allocator.release(allocator.allocate(4096), 4096);
  allocator.release(allocator.allocate(4096), 4096);  // from the cache
  EXPECT_EQ(seen, std::vector<std::size_t>{4096});
  allocator.set_observer(0, nullptr);
  allocator.release(allocator.allocate(100000), 100000);
  EXPECT_EQ(seen.size(), 1u);
}

TEST(CachingAllocator, CountsSizeClassesAndThePeak) {
  BlockLedger ledger;
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), kNoLimit);
  void* const a = allocator.allocate(100);  // 128
  void* const b = allocator.allocate(600);  // 640
  EXPECT_EQ(allocator.stats().in_use, 768u);
  allocator.release(b, 600);
  MemoryStats stats = allocator.stats();
  EXPECT_EQ(stats.in_use, 128u);
  EXPECT_EQ(stats.cached, 640u);
  EXPECT_EQ(stats.peak_in_use, 768u);
  allocator.reset_peak();
  EXPECT_EQ(allocator.stats().peak_in_use, 128u);
  allocator.release(a, 100);
  allocator.trim();
  stats = allocator.stats();
  EXPECT_EQ(stats.in_use, 0u);
  EXPECT_EQ(stats.cached, 0u);
  EXPECT_EQ(ledger.held, 0u);
}

TEST(CachingAllocator, ReachesASteadyState) {
  BlockLedger ledger;
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), kNoLimit);
  const std::vector<std::size_t> sizes = {40, 4096, 100000, 4096, 77, 1 << 20};
  const auto step = [&] {
    std::vector<void*> blocks;
    for (const std::size_t size : sizes) blocks.push_back(allocator.allocate(size));
    for (std::size_t i = 0; i < sizes.size(); ++i) allocator.release(blocks[i], sizes[i]);
  };
  step();
  const MemoryStats first = allocator.stats();
  for (int i = 0; i < 100; ++i) step();
  EXPECT_EQ(allocator.stats().source_calls, first.source_calls);
  EXPECT_EQ(allocator.stats().peak_in_use, first.peak_in_use);
}

TEST(CachingAllocator, ReleasesItsCacheBeforeItFails) {
  BlockLedger ledger{.capacity = 10000};
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), kNoLimit);
  allocator.release(allocator.allocate(6000), 6000);
  void* const block = allocator.allocate(8192);  // fits only without the cached 6144
  EXPECT_NE(block, nullptr);
  EXPECT_EQ(ledger.refusals, 1u);
  EXPECT_EQ(allocator.stats().cached, 0u);
  allocator.release(block, 8192);
}

TEST(CachingAllocator, CountsCachedBytesAgainstItsOwnLimit) {
  BlockLedger ledger;
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), 10000);
  allocator.release(allocator.allocate(6000), 6000);
  allocator.release(allocator.allocate(8192), 8192);
  EXPECT_EQ(ledger.held, 8192u) << "the allocator held more than the limit";
}

std::string message_of(CachingAllocator& allocator, std::size_t bytes) {
  try {
    allocator.allocate(bytes);
  } catch (const DeviceError& error) {
    EXPECT_EQ(error.code(), ExitCode::device);
    return error.what();
  }
  return "nothing was thrown";
}

TEST(CachingAllocator, ErrorStatesRequestUsageAndAdvice) {
  BlockLedger ledger;
  CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), 3 << 20);
  void* const block = allocator.allocate(1 << 20);
  const std::string message = message_of(allocator, std::size_t{5} << 30);
  for (const char* part :
       {"fake:3", "asked for 5.00 GiB", "1.00 MiB in use", "limit 3.00 MiB", "use smaller batches"})
    EXPECT_NE(message.find(part), std::string::npos) << part << " is missing in: " << message;
  EXPECT_EQ(allocator.stats().in_use, std::size_t{1} << 20) << "a failed request changes nothing";
  allocator.release(block, 1 << 20);
}

TEST(CachingAllocator, ThrowsForHugeSizesWithoutOverflow) {
  constexpr std::size_t kMax = std::numeric_limits<std::size_t>::max();
  for (const std::size_t limit : {std::size_t{1} << 20, kNoLimit}) {
    BlockLedger ledger{.capacity = std::size_t{1} << 20};
    CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), limit);
    for (const std::size_t bytes : {kMax, kMax - 100, kMax / 2 + 2})
      EXPECT_NE(message_of(allocator, bytes).find("out of memory"), std::string::npos) << bytes;
  }
}

TEST(CachingAllocator, DestructorReleasesEverything) {
  BlockLedger ledger;
  {
    CachingAllocator allocator(std::make_unique<FakeMemory>(ledger), kNoLimit);
    for (const std::size_t bytes : {1u, 700u, 90000u}) allocator.release(allocator.allocate(bytes), bytes);
    EXPECT_GT(ledger.held, 0u);
  }
  EXPECT_EQ(ledger.held, 0u);
}

/// Tests with both policies: `caching` keeps released blocks, and `exact` returns them to the source.
class Pool : public ::testing::TestWithParam<CachingAllocator::Policy> {
 protected:
  bool caches() const { return GetParam() == CachingAllocator::Policy::caching; }

  BlockLedger ledger_;
  CachingAllocator allocator_{std::make_unique<FakeMemory>(ledger_), kNoLimit, GetParam()};
};

INSTANTIATE_TEST_SUITE_P(MemoryPool, Pool,
                         ::testing::Values(CachingAllocator::Policy::caching,
                                           CachingAllocator::Policy::exact));

TEST_P(Pool, ReusesItsOwnBlocks) {
  MemoryPool pool(allocator_);
  void* pooled = nullptr;
  {
    const MemoryPool::Scope scope(pool);
    pooled = allocator_.allocate(640);
    allocator_.release(pooled, 640);
    EXPECT_EQ(allocator_.allocate(640), pooled) << "the pool must reuse its released block";
    allocator_.release(pooled, 640);
  }
  EXPECT_EQ(pool.bytes(), 640u);
  MemoryPool second(allocator_);
  const MemoryPool::Scope scope(second);
  void* const other = allocator_.allocate(640);
  EXPECT_NE(other, pooled) << "another pool must not use the block";
  allocator_.release(other, 640);
}

TEST_P(Pool, BlocksAreNotUsedOutside) {
  MemoryPool pool(allocator_);
  void* pooled = nullptr;
  {
    const MemoryPool::Scope scope(pool);
    pooled = allocator_.allocate(640);
  }
  allocator_.release(pooled, 640);  // the block still belongs to the pool after the scope
  void* const other = allocator_.allocate(640);
  EXPECT_NE(other, pooled);
  allocator_.trim();
  EXPECT_EQ(ledger_.held, 1280u) << "trim() must not release blocks of the pool";
  allocator_.release(other, 640);
}

TEST_P(Pool, TakesCachedBlocksAndReturnsThemWhenDestroyed) {
  void* const before = allocator_.allocate(640);
  allocator_.release(before, 640);
  {
    MemoryPool pool(allocator_);
    const MemoryPool::Scope scope(pool);
    void* const pooled = allocator_.allocate(640);
    if (caches()) {
      EXPECT_EQ(pooled, before);
    }
    allocator_.release(pooled, 640);
    EXPECT_EQ(allocator_.stats().cached, 0u);
  }
  EXPECT_EQ(allocator_.stats().cached, caches() ? 640u : 0u);
  EXPECT_EQ(ledger_.held, caches() ? 640u : 0u);
}

TEST_P(Pool, CountsAllItsBlocksAsInUse) {
  auto pool = std::make_unique<MemoryPool>(allocator_);
  void* held = nullptr;
  {
    const MemoryPool::Scope scope(*pool);
    allocator_.release(allocator_.allocate(640), 640);
    held = allocator_.allocate(1024);
    EXPECT_EQ(allocator_.stats().peak_in_use, 1664u);
  }
  EXPECT_EQ(pool->bytes(), 1664u);
  EXPECT_EQ(allocator_.stats().in_use, 1664u);
  EXPECT_EQ(allocator_.stats().in_pools, 1664u);
  EXPECT_EQ(allocator_.stats().peak_in_use, 1664u) << "replays use all blocks";
  pool.reset();
  EXPECT_EQ(allocator_.stats().in_use, 1024u);
  EXPECT_EQ(allocator_.stats().in_pools, 0u);
  allocator_.release(held, 1024);
  EXPECT_EQ(allocator_.stats().in_use, 0u);
  EXPECT_EQ(allocator_.stats().cached, caches() ? 1664u : 0u);
}

TEST_P(Pool, BlocksInUseOutliveThePool) {
  void* held = nullptr;
  {
    MemoryPool pool(allocator_);
    const MemoryPool::Scope scope(pool);
    held = allocator_.allocate(640);
  }
  std::memset(held, 1, 640);  // AddressSanitizer detects whether the block was freed
  EXPECT_EQ(ledger_.held, 640u);
  allocator_.release(held, 640);
  EXPECT_EQ(ledger_.held, caches() ? 640u : 0u);
  void* const again = allocator_.allocate(640);
  if (caches()) {
    EXPECT_EQ(again, held) << "the block must return to the cache";
  }
  allocator_.release(again, 640);
}

TEST_P(Pool, UsesTheSizesOfThePolicy) {
  MemoryPool pool(allocator_);
  const MemoryPool::Scope scope(pool);
  void* const block = allocator_.allocate(601);
  EXPECT_EQ(ledger_.held, caches() ? 640u : 601u);
  allocator_.release(block, 601);
}

TEST_P(Pool, AppliesOnlyToTheThreadOfItsScope) {
  MemoryPool pool(allocator_);
  const MemoryPool::Scope scope(pool);
  void* const pooled = allocator_.allocate(640);
  allocator_.release(pooled, 640);
  std::thread([&] {
    void* const other = allocator_.allocate(640);
    EXPECT_NE(other, pooled);
    allocator_.release(other, 640);
    MemoryPool own(allocator_);
    const MemoryPool::Scope own_scope(own);
    allocator_.release(allocator_.allocate(1024), 1024);
    EXPECT_EQ(own.bytes(), 1024u);
  }).join();
  EXPECT_EQ(pool.bytes(), 640u);
  EXPECT_THROW(MemoryPool::Scope second(pool), UsageError);
}

TEST_P(Pool, ReleasesNothingToTheSourceWhileAScopeIsOpen) {
  void* const before = allocator_.allocate(640);
  MemoryPool pool(allocator_);
  {
    const MemoryPool::Scope scope(pool);
    allocator_.release(before, 640);
    { const MemoryPool short_lived(allocator_); }
    allocator_.trim();
    EXPECT_EQ(ledger_.held, 640u);
    EXPECT_EQ(allocator_.stats().cached, 640u);
  }
  EXPECT_EQ(ledger_.held, caches() ? 640u : 0u);
  allocator_.trim();
  EXPECT_EQ(ledger_.held, 0u);
}

TEST_P(Pool, ErrorStatesTheBytesReservedForCudaGraphs) {
  ledger_.capacity = 2048;
  MemoryPool pool(allocator_);
  const MemoryPool::Scope scope(pool);
  void* const block = allocator_.allocate(1024);
  EXPECT_NE(message_of(allocator_, 4096).find("1.00 KiB of it reserved for CUDA graphs"), std::string::npos);
  EXPECT_EQ(pool.bytes(), 1024u);
  allocator_.release(block, 1024);
}

TEST(CachingAllocator, ServesSeveralThreads) {
  CachingAllocator allocator(host_memory(), kNoLimit);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&allocator, t] {
      for (std::size_t i = 1; i <= 500; ++i) {
        const std::size_t bytes = i * 37 % 3000 + 1;
        auto* const block = static_cast<unsigned char*>(allocator.allocate(bytes));
        block[0] = block[bytes - 1] = static_cast<unsigned char>(t);
        EXPECT_EQ(block[0], t);
        allocator.release(block, bytes);
      }
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(allocator.stats().in_use, 0u);
}

TEST(HostMemory, IsAligned) {
  const auto memory = host_memory();
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{320}, std::size_t{3} << 20}) {
    void* const block = memory->allocate(bytes);
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % 64, 0u);
    memory->release(block, bytes);
  }
}

TEST(FormatBytes, ChoosesTheUnit) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(640), "640 B");
  EXPECT_EQ(format_bytes(1536), "1.50 KiB");
  EXPECT_EQ(format_bytes(std::size_t{3} << 29), "1.50 GiB");
  EXPECT_EQ(format_bytes(std::size_t{5} << 50), "5120.00 TiB");
}

/// Returns the lines of /proc/self/smaps about the mapping that contains `block`.
std::string mapping_of(const void* block) {
  const auto address = reinterpret_cast<std::uintptr_t>(block);
  std::ifstream maps("/proc/self/smaps");
  std::string description;
  bool is_inside = false;
  for (std::string line; std::getline(maps, line);) {
    std::istringstream words(line);
    std::uintptr_t begin = 0, end = 0;
    char dash = 0;
    if (words >> std::hex >> begin >> dash >> end && dash == '-')
      is_inside = begin <= address && address < end;
    if (is_inside) description += line + "\n";
  }
  return description;
}

TEST(HostMemory, RequestsHugePagesForLargeBlocks) {
  if (!std::ifstream("/sys/kernel/mm/transparent_hugepage/enabled"))
    GTEST_SKIP() << "needs transparent huge pages";
  const std::unique_ptr<MemorySource> host = host_memory();
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  void* const large = host->allocate(2 * kHugePage + 100);
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(large) % kHugePage, 0u);
  const std::string mapping = mapping_of(large);
  host->release(large, 2 * kHugePage + 100);
  const std::size_t flags = mapping.find("VmFlags:");
  if (flags == std::string::npos) GTEST_SKIP() << "needs VmFlags in /proc/self/smaps";
  EXPECT_NE(mapping.find(" hg", flags), std::string::npos) << "huge pages were not asked for:\n" << mapping;
}

}  // namespace
}  // namespace convoy
