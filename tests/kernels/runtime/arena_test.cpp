#include "convoy/kernels/runtime/memory/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <random>
#include <vector>

#include "convoy/kernels/base/error.h"
#include "convoy/kernels/runtime/memory/memory.h"

namespace convoy {
namespace {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr std::size_t kSegment = 64 * kMiB;

/// What a fake source has allocated. It outlives the allocator that owns the source.
struct Ledger {
  std::size_t capacity = 1024 * kMiB;
  std::size_t held = 0;
  int calls = 0;
};

class SegmentedMemory final : public MemorySource {
 public:
  explicit SegmentedMemory(Ledger& ledger) : ledger_(ledger) {}
  void* allocate(std::size_t bytes) override {
    if (bytes > ledger_.capacity - ledger_.held) return nullptr;
    ledger_.held += bytes;
    ++ledger_.calls;
    return host_->allocate(bytes);
  }
  void release(void* block, std::size_t bytes) noexcept override {
    ledger_.held -= bytes;
    host_->release(block, bytes);
  }
  std::size_t segment_bytes() const override { return kSegment; }
  std::string name() const override { return "segmented"; }

 private:
  Ledger& ledger_;
  std::unique_ptr<MemorySource> host_ = host_memory();
};

/// An allocator whose source has segments of 64 MiB. The destructor releases the blocks that a test has not
/// released.
class ArenaBlocks : public ::testing::Test {
 protected:
  ~ArenaBlocks() override {
    while (!taken_.empty()) give(taken_.begin()->first);
  }

  std::byte* take(std::size_t bytes) {
    auto* const block = static_cast<std::byte*>(allocator_.allocate(bytes));
    EXPECT_TRUE(taken_.emplace(block, bytes).second) << "the same block twice";
    return block;
  }
  void give(std::byte* block) {
    allocator_.release(block, taken_.at(block));
    taken_.erase(block);
  }
  std::size_t cached() const { return allocator_.stats().cached; }

  Ledger ledger_;
  CachingAllocator allocator_{std::make_unique<SegmentedMemory>(ledger_), 0};
  std::map<std::byte*, std::size_t> taken_;
};

TEST_F(ArenaBlocks, AreCutFromOneSegment) {
  std::byte* const first = take(4 * kMiB);
  EXPECT_EQ(take(3 * kMiB), first + 4 * kMiB);
  EXPECT_EQ(ledger_.calls, 1);
  EXPECT_EQ(allocator_.stats().in_use, 7 * kMiB);
  EXPECT_EQ(cached(), 0u) << "memory that was never used is not counted as cached";
}

/// Size classes cannot merge blocks.
TEST_F(ArenaBlocks, MergeIntoALargeBlockWhenReleased) {
  std::vector<std::byte*> small;
  for (int i = 0; i < 8; ++i) small.push_back(take(4 * kMiB));
  for (const std::size_t i : {1, 6, 3, 0, 2, 7, 5, 4}) give(small[i]);
  EXPECT_EQ(cached(), 32 * kMiB);
  const std::uint64_t calls = allocator_.stats().source_calls;
  EXPECT_EQ(take(32 * kMiB), small[0]);
  EXPECT_EQ(allocator_.stats().source_calls, calls);
  EXPECT_EQ(cached(), 0u);
}

TEST_F(ArenaBlocks, ComeFromTheSmallestRangeThatFits) {
  std::vector<std::byte*> blocks;
  for (const std::size_t size : {8, 2, 4, 2, 16, 2}) blocks.push_back(take(size * kMiB));
  for (const std::size_t i : {0, 2, 4}) give(blocks[i]);
  EXPECT_EQ(take(3 * kMiB), blocks[2]);
  EXPECT_EQ(take(5 * kMiB), blocks[0]);
  EXPECT_EQ(take(16 * kMiB), blocks[4]);
  // 1 MiB and 3 MiB are left of the first two ranges. They are not adjacent.
  EXPECT_EQ(cached(), 4 * kMiB);
  EXPECT_EQ(take(3 * kMiB), blocks[0] + 5 * kMiB);
}

TEST_F(ArenaBlocks, AreWholePages) {
  std::byte* const block = take(3 * kMiB + 1);
  EXPECT_EQ(allocator_.stats().in_use, 3 * kMiB + 4096);
  give(block);
  EXPECT_EQ(allocator_.stats().in_use, 0u);
  EXPECT_EQ(cached(), 3 * kMiB + 4096);
}

TEST_F(ArenaBlocks, AreAtLeastTwoMebibytes) {
  std::byte* const small = take(kMiB);
  EXPECT_EQ(ledger_.held, kMiB) << "no segment was allocated";
  give(small);
  EXPECT_EQ(take(kMiB), small);
}

TEST_F(ArenaBlocks, LargerThanASegmentGetTheirOwnSegment) {
  give(take(100 * kMiB));
  EXPECT_EQ(ledger_.held, 100 * kMiB);
  allocator_.trim();
  EXPECT_EQ(ledger_.held, 0u);
}

TEST_F(ArenaBlocks, AreAllocatedAloneIfASegmentDoesNotFit) {
  ledger_.capacity = 10 * kMiB;
  take(8 * kMiB);
  EXPECT_EQ(ledger_.held, 8 * kMiB);
  EXPECT_THROW(allocator_.allocate(4 * kMiB), DeviceError);
}

/// Even adjacent segments stay separate, because each is released to the source as it was allocated.
TEST_F(ArenaBlocks, DoNotMergeAcrossSegments) {
  std::vector<std::byte*> blocks;
  for (int i = 0; i < 4; ++i) blocks.push_back(take(kSegment));
  for (std::byte* const block : blocks) give(block);
  const int calls = ledger_.calls;
  take(2 * kSegment);
  EXPECT_EQ(ledger_.calls, calls + 1);
}

TEST_F(ArenaBlocks, UseTheRestOfAnOlderSegment) {
  std::byte* const first = take(50 * kMiB);
  take(60 * kMiB);  // from a new segment; 14 MiB are left of the first
  EXPECT_EQ(take(10 * kMiB), first + 50 * kMiB);
  EXPECT_EQ(ledger_.calls, 2);
}

TEST_F(ArenaBlocks, KeepTheirSegmentDuringTrim) {
  std::byte* const first = take(50 * kMiB);
  take(60 * kMiB);
  std::byte* const third = take(60 * kMiB);
  give(first);
  give(third);
  allocator_.trim();
  EXPECT_EQ(ledger_.held, kSegment);
  EXPECT_EQ(cached(), 4 * kMiB) << "the rest of the second segment";
  take(50 * kMiB);
  EXPECT_EQ(ledger_.held, 2 * kSegment);
}

TEST_F(ArenaBlocks, CountAgainstTheLimitButSegmentsDoNot) {
  CachingAllocator limited(std::make_unique<SegmentedMemory>(ledger_), 20 * kMiB);
  void* const block = limited.allocate(12 * kMiB);
  EXPECT_THROW(limited.allocate(12 * kMiB), DeviceError);
  void* const more = limited.allocate(8 * kMiB);
  limited.release(block, 12 * kMiB);
  limited.release(more, 8 * kMiB);
}

TEST_F(ArenaBlocks, ReturnFromAPoolWhenItIsDestroyed) {
  std::byte* block = nullptr;
  {
    MemoryPool pool(allocator_);
    const MemoryPool::Scope scope(pool);
    block = take(8 * kMiB);
    give(block);
    EXPECT_EQ(cached(), 0u);
    EXPECT_EQ(take(8 * kMiB), block);
    give(block);
  }
  EXPECT_EQ(cached(), 8 * kMiB);
  EXPECT_EQ(take(8 * kMiB), block);
}

/// A step allocates many arrays in the forward pass, and others of another size where it has released them. The pool
/// has the memory of the moment at which most are in use.
TEST_F(ArenaBlocks, OfAPoolServeOtherSizes) {
  give(take(48 * kMiB));
  auto pool = std::make_unique<MemoryPool>(allocator_);
  {
    const MemoryPool::Scope scope(*pool);
    std::vector<std::byte*> small;
    for (int i = 0; i < 8; ++i) small.push_back(take(4 * kMiB));  // 32 MiB
    give(small[6]);
    give(small[7]);
    std::byte* const first = take(3 * kMiB);
    EXPECT_EQ(first, small[6]);
    std::byte* const second = take(5 * kMiB);
    EXPECT_EQ(second, first + 3 * kMiB);
    EXPECT_EQ(pool->bytes(), 32 * kMiB);
    give(small[5]);
    take(6 * kMiB);  // only 4 MiB are free
    EXPECT_EQ(pool->bytes(), 38 * kMiB);
    give(small[4]);
    EXPECT_EQ(take(5 * kMiB), small[4]);
    give(second);
    give(first);  // merged from both sides: 3 MiB are free in front
    EXPECT_EQ(take(11 * kMiB), small[4] + 5 * kMiB);
    EXPECT_EQ(pool->bytes(), 38 * kMiB);
    EXPECT_EQ(allocator_.stats().in_use, 38 * kMiB);
    give(small[0]);
  }
  pool.reset();
  EXPECT_EQ(allocator_.stats().in_use, 34 * kMiB);
  EXPECT_EQ(cached(), 14 * kMiB);
}

/// Allocates and releases random sizes in random order. No blocks overlap, none is lost, and at the end all
/// segments are free.
TEST_F(ArenaBlocks, DoNotOverlap) {
  std::mt19937 random(7);
  std::map<std::byte*, std::byte> marks;
  const auto places = [&](std::byte* block) {
    const std::size_t bytes = taken_.at(block);
    return std::vector<std::byte*>{block, block + bytes / 2, block + bytes - 1};
  };
  const auto give_one = [&](std::size_t i) {
    const auto [block, mark] = *std::next(marks.begin(), static_cast<std::ptrdiff_t>(i));
    for (const std::byte* const place : places(block)) ASSERT_EQ(*place, mark);
    marks.erase(block);
    give(block);
  };
  for (int step = 0; step < 2000; ++step) {
    if (marks.size() < 20 && random() % 2 == 0) {
      std::byte* const block = take(2 * kMiB + random() % (8 * kMiB));
      marks[block] = static_cast<std::byte>(step);
      for (std::byte* const place : places(block)) *place = marks[block];
    } else if (!marks.empty()) {
      give_one(random() % marks.size());
    }
  }
  while (!marks.empty()) give_one(0);
  EXPECT_EQ(allocator_.stats().in_use, 0u);
  allocator_.trim();
  EXPECT_EQ(ledger_.held, 0u);
  EXPECT_EQ(cached(), 0u);
}

}  // namespace
}  // namespace convoy
